"""From what the judge says to verdicts and the attempts that prove them."""

from collections.abc import Callable, Sequence

from torch import Tensor

from robust0.attacks.engine import Outcome
from robust0.attacks.judge import Judgement
from robust0.auditing.attempts import Key
from robust0.auditing.plan import Stage
from robust0.auditing.prune import SmallerHit, prune
from robust0.models.fast.oracle import Oracle
from robust0.records import CLEAN, Unit, Verdict
from robust0.threats import Threat
from robust0.threats.perturbation import Perturbation

CLEAN_REVISION = 1


def clean_verdicts(
    verdict: Judgement, ids: Sequence[int], labels: Sequence[int], unit: Unit
) -> list[Verdict]:
    """Verdicts on unchanged images, from a judgement of them against themselves."""
    columns = zip(
        ids, labels, verdict.prediction.tolist(), verdict.margin.tolist(),
        verdict.fragile.tolist(), strict=True,
    )  # fmt: skip
    return [
        Verdict(
            image=image, label=label, attack=CLEAN, revision=CLEAN_REVISION, unit=unit, budget=0,
            fooled=prediction != label, prediction=prediction, margin=margin, distance=0, needed=0,
            forwards=1, backwards=0, fragile=fragile, violation="",
        )
        for image, label, prediction, margin, fragile in columns
    ]  # fmt: skip


def verdicts_of(
    oracle: Oracle,
    threat: Threat,
    stage: Stage,
    revision: int,
    outcomes: Sequence[Outcome],
    images_of: Callable[[Sequence[int]], tuple[Tensor, Tensor]],
) -> tuple[list[Verdict], dict[Key, Perturbation]]:
    """Shrink the hits among outcomes and write down all of them.

    Prediction, margin and fragility of a hit are those of the smaller one, which is what is kept;
    ``distance`` is that of the hit as found.
    """
    hits = [outcome for outcome in outcomes if outcome.fooled]
    smaller: dict[int, SmallerHit] = {}
    for start in range(0, len(hits), oracle.batch_size):
        part = hits[start : start + oracle.batch_size]
        clean, labels = images_of([hit.image for hit in part])
        found = prune(oracle, threat, clean, [hit.attempt for hit in part], labels)
        smaller |= {hit.image: less for hit, less in zip(part, found, strict=True) if less.fooled}
    verdicts = [_verdict(stage, threat, revision, o, smaller.get(o.image)) for o in outcomes]
    attempts: dict[Key, Perturbation] = {
        (*stage, o.image): smaller.get(o.image, o).attempt for o in outcomes
    }
    return verdicts, attempts


def _verdict(
    stage: Stage, threat: Threat, revision: int, outcome: Outcome, less: SmallerHit | None
) -> Verdict:
    final = outcome if less is None else less
    return Verdict(
        image=outcome.image,
        label=outcome.label,
        attack=stage[1],
        revision=revision,
        unit=threat.unit,
        budget=stage[0],
        fooled=outcome.fooled,
        prediction=final.prediction,
        margin=final.margin,
        distance=outcome.distance,
        needed=final.distance,
        forwards=outcome.forwards,
        backwards=outcome.backwards,
        fragile=final.fragile,
        violation=outcome.violation or final.violation,
    )
