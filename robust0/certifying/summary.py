"""From proofs to numbers: a pure fold, without torch, so that any report can be rebuilt."""

from collections import Counter
from collections.abc import Sequence

from robust0.auditing.interval import accuracy
from robust0.certifying.facts import CertifyFacts
from robust0.proofs import (
    Bracket,
    CertificateResults,
    CertifiedClass,
    CertifiedClassifier,
    CertifiedPoint,
    Proof,
    Trial,
    TrialRow,
)


def summarise_proofs(
    facts: CertifyFacts,
    proofs: Sequence[Proof],
    trials: Sequence[Trial],
    bracket: Bracket | None,
) -> CertificateResults:
    """The results of a complete run.

    Args:
        facts: what the run knows of itself.
        proofs: of every image.
        trials: of the certificates that were attacked.
        bracket: with an audit of the same classifier and images.
    """
    return CertificateResults(
        subject=facts.subject,
        settings=facts.settings,
        classifiers=tuple(
            classifier(facts, name, proofs, [t for t in trials if t.classifier == name])
            for name in facts.settings.classifiers
        ),
        bracket=bracket,
    )


def classifier(
    facts: CertifyFacts, name: str, proofs: Sequence[Proof], trials: Sequence[Trial]
) -> CertifiedClassifier:
    """One classifier; its answers are never mixed with another's."""
    answers = [(proof.label, proof.answers[name]) for proof in proofs]
    right = Counter(answer.radius for label, answer in answers if answer.label == label)
    wrong = Counter(answer.radius for label, answer in answers if answer.label not in (label, None))
    asked = facts.settings.pixels
    last = max((*asked, *right, *wrong))
    points = tuple(
        CertifiedPoint(
            pixels=pixels,
            certified=accuracy(_at_least(right, pixels), len(proofs)),
            wrong=_at_least(wrong, pixels),
        )
        for pixels in range(1, last + 1)
    )
    return CertifiedClassifier(
        name=name,
        clean=accuracy(right.total(), len(proofs)),
        abstained=sum(answer.label is None for _, answer in answers),
        points=points,
        median=median(right, len(proofs)),
        radii={radius: right[radius] for radius in sorted(right)},
        classes=_classes(facts, name, proofs),
        trials=_trials(facts, trials),
    )


def median(right: Counter[int], images: int) -> int | None:
    """The most pixels at which half of all images are certified; none if fewer are right at all."""
    reached = [r for r in range(max(right, default=0) + 1) if 2 * _at_least(right, r) >= images]
    return max(reached, default=None)


def _at_least(radii: Counter[int], pixels: int) -> int:
    return sum(count for radius, count in radii.items() if radius >= pixels)


def _classes(facts: CertifyFacts, name: str, proofs: Sequence[Proof]) -> tuple[CertifiedClass, ...]:
    rows = []
    for label in sorted({proof.label for proof in proofs}):
        answers = [proof.answers[name] for proof in proofs if proof.label == label]
        rows.append(
            CertifiedClass(
                label=label,
                name=facts.class_names[label],
                images=len(answers),
                clean=sum(answer.certified(label, 0) for answer in answers),
                certified={
                    pixels: sum(answer.certified(label, pixels) for answer in answers)
                    for pixels in facts.settings.pixels
                },
            )
        )
    return tuple(rows)


def _trials(facts: CertifyFacts, trials: Sequence[Trial]) -> tuple[TrialRow, ...]:
    rows = []
    for attack in dict.fromkeys(trial.attack for trial in trials):
        mine = [trial for trial in trials if trial.attack == attack]
        broken = tuple(sorted(trial.image for trial in mine if trial.broke))
        rows.append(
            TrialRow(
                attack=attack,
                revision=mine[0].revision,
                effort=facts.settings.effort,
                tried=len(mine),
                broken=len(broken),
                images=broken,
            )
        )
    return tuple(rows)
