"""Certified accuracies in a gate: floors, a baseline, and the paired comparison with it."""

import json
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from robust0 import __version__
from robust0.auditing.rundata import validated
from robust0.certifying.rundata import CertificateRun
from robust0.decision import Check, Decision
from robust0.errors import EvaluationError, RecipeError, RunError
from robust0.files import write_text
from robust0.gate.decide import Policy, floor_check, paired_check
from robust0.gate.metrics import Floor, Metric
from robust0.proofs import CertificateResults, CertifySettings, Proof
from robust0.records import CLEAN, Accuracy, Frozen, Subject
from robust0.wording import certificate_meaning, tidy

CERTIFIED: Final = "certified"  # the headline, whatever its rule is called
KIND: Final = "robust0-certificate-baseline"
_SAMPLING = ("keep", "choose", "bound", "alpha", "condition")


class CertificateBaseline(Frozen):
    """The certified radius of every image and classifier; -1 where the answer is not right."""

    schema_version: Literal[1] = Field(1, alias="schema")
    kind: Literal["robust0-certificate-baseline"] = KIND
    robust0: str
    subject: Subject
    settings: CertifySettings
    ids: tuple[int, ...]
    labels: tuple[int, ...]
    radii: dict[str, tuple[int, ...]] = Field(min_length=1, description="by classifier")

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )

    @model_validator(mode="after")
    def _one_radius_per_image(self) -> Self:
        if any(len(row) != len(self.ids) for row in (self.labels, *self.radii.values())):
            raise ValueError("labels and radii must have one entry per image id")
        if len(set(self.ids)) != len(self.ids) or self.settings.headline not in self.radii:
            raise ValueError("an image id occurs twice, or the headline has no radii")
        return self

    def certified(self, metric: Metric, pixels: int) -> list[bool]:
        """Which images count for a metric at this many pixels, in ascending order of ids."""
        radii = self.radii[_classifier(metric, self.settings)]
        return [radius >= pixels for _, radius in sorted(zip(self.ids, radii, strict=True))]


def of_certificate(run: CertificateRun) -> CertificateBaseline:
    """A certificate as a baseline; refuses one that an attack has broken."""
    results = run.report.results
    refuse_broken(results)
    return of_proofs(results.subject, results.settings, run.proofs)


def of_proofs(
    subject: Subject, settings: CertifySettings, proofs: Sequence[Proof]
) -> CertificateBaseline:
    """The radii that proofs say."""
    return CertificateBaseline(
        robust0=__version__,
        subject=subject,
        settings=settings,
        ids=tuple(proof.image for proof in proofs),
        labels=tuple(proof.label for proof in proofs),
        radii={
            name: tuple(
                proof.answers[name].radius if proof.answers[name].certified(proof.label, 0) else -1
                for proof in proofs
            )
            for name in settings.classifiers
        },
    )


def refuse_broken(results: CertificateResults) -> None:
    """A broken certificate is a bug in robust0: no number of the run may be used."""
    found = [
        (row.name, trial.attack, image)
        for row in results.classifiers
        for trial in row.trials
        for image in trial.images
    ]
    if results.bracket is not None:
        audited = (results.bracket.classifier, "the audit")
        found += [(*audited, image) for image in results.bracket.broken]
    if found:
        name, attack, image = found[0]
        raise EvaluationError(
            f"{len(found)} certificates are false: {tidy(attack)} changes the answer of "
            f"{tidy(name)} on image {image} within its certified radius; no number may be used",
            "this is a bug in robust0: please report it with the run directory",
        )


def write_certificate_baseline(path: Path, baseline: CertificateBaseline) -> None:
    """Write baseline.json, whole or not at all; a file that is something else is not replaced."""
    if path.exists():
        read_certificate_baseline(path)
    document = baseline.model_dump(mode="json", by_alias=True)
    parts = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "{\n" + ",\n".join(parts) + "\n}\n")
    except OSError as problem:
        raise RunError(
            f"cannot write {path}: {problem.strerror}", "choose a writable place"
        ) from problem


def read_certificate_baseline(path: Path) -> CertificateBaseline:
    """A certificate's baseline.json; a file is untrusted input."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(
            f"there is no baseline {path}", f"make one: robust0 gate RUN --write-baseline {path}"
        ) from None
    except (OSError, ValueError, RecursionError) as problem:
        raise RunError(f"{path} cannot be read: {problem}", "give a baseline.json") from problem
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise RunError(
            f"{path} is not the baseline of a certificate",
            "compare certificates with certificates and audits with audits",
        )
    return validated(CertificateBaseline, document, path)


def check_certified_floors(floors: Sequence[Floor], settings: CertifySettings) -> None:
    """Refuse a floor for a number that the run will not have, before it starts."""
    for floor in floors:
        _classifier(floor.metric, settings)
        metric_pixels(floor.metric, settings)


def certified_floors(results: CertificateResults, floors: Iterable[Floor]) -> tuple[Check, ...]:
    """One check per floor."""
    return tuple(
        floor_check(
            metric_title(floor.metric, results.settings),
            _accuracy(results, floor.metric),
            floor.percent,
        )
        for floor in floors
    )


def certified_drops(
    before: CertificateBaseline,
    after: CertificateBaseline,
    metrics: Sequence[Metric],
    max_drop: Fraction,
    policy: Policy,
) -> list[Check]:
    """One check per metric, paired on the same images."""
    chosen = metrics or [Metric(CERTIFIED, pixels) for pixels in after.settings.pixels]
    return [
        paired_check(
            metric_title(metric, after.settings), before.certified(metric, pixels),
            after.certified(metric, pixels), max_drop, policy,
        )
        for metric in chosen
        for pixels in (metric_pixels(metric, after.settings),)
    ]  # fmt: skip


def require_comparable_certificates(
    before: CertificateBaseline, after: CertificateBaseline
) -> None:
    """Refuse to compare what was not proved alike, naming each difference."""
    old, new = before.settings, after.settings
    same = len(before.ids) == len(after.ids)
    pairs: list[tuple[str, object, object]] = [
        ("kind of certificate", old.kind, new.kind),
        ("data fingerprint", before.subject.data_fingerprint, after.subject.data_fingerprint),
        ("images", len(before.ids), len(after.ids)),
        ("labels of the images", _labels(before) if same else "", _labels(after) if same else ""),
    ]
    if old.kind == new.kind == "ablation":
        pairs += [(key, old.details.get(key), new.details.get(key)) for key in _SAMPLING]
    found = [f"{name} {tidy(str(a), 40)} -> {tidy(str(b), 40)}" for name, a, b in pairs if a != b]
    if found:
        raise RunError(
            f"run and baseline are not comparable: {'; '.join(found)}",
            "certify with the baseline's images and settings, or write a new baseline",
        )


def _labels(side: CertificateBaseline) -> list[tuple[int, int]]:
    return sorted(zip(side.ids, side.labels, strict=True))


def certified_decision(results: CertificateResults, checks: Sequence[Check]) -> Decision:
    """All checks of a gate on one certificate; at least one."""
    if not checks:
        raise RecipeError(
            "a gate needs a condition", "give --baseline FILE or --fail-under certified@5=45"
        )
    settings = results.settings
    identity = (
        f"{settings.kind} certificate of {settings.headline}, {results.subject.images:,} images"
    )
    meaning = " ".join(certificate_meaning(settings))
    return Decision(identity=identity, checks=tuple(checks), meaning=meaning)


def metric_title(metric: Metric, settings: CertifySettings) -> str:
    """``certified at 5 pixels``, ``clean``."""
    if metric.name == CLEAN:
        return CLEAN
    pixels = metric_pixels(metric, settings)
    return f"{tidy(metric.name)} at {pixels} pixel{'' if pixels == 1 else 's'}"


def metric_pixels(metric: Metric, settings: CertifySettings) -> int:
    """How many pixels a metric is about: the most that were asked about, unless it says."""
    if metric.name == CLEAN:
        return 0
    pixels = settings.pixels[-1] if metric.budget is None else int(metric.budget)
    if pixels not in settings.pixels:
        raise RecipeError(
            f"{metric}: this certificate was not asked about {pixels} pixels",
            f"one of {', '.join(str(value) for value in settings.pixels)}; or change --eps",
        )
    return pixels


def _classifier(metric: Metric, settings: CertifySettings) -> str:
    if metric.name in (CLEAN, CERTIFIED):
        return settings.headline
    if metric.name not in settings.classifiers:
        names = (CLEAN, CERTIFIED, *settings.classifiers)
        raise RecipeError(
            f"the certificate has no number {tidy(metric.name)!r}", f"one of {', '.join(names)}"
        )
    return metric.name


def _accuracy(results: CertificateResults, metric: Metric) -> Accuracy:
    name = _classifier(metric, results.settings)
    row = next(row for row in results.classifiers if row.name == name)
    return row.at(metric_pixels(metric, results.settings))
