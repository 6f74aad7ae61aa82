"""Certificates side by side: certified accuracy at every radius that any of them was asked about.

A certified radius is known exactly for every image, so no radius has to be common.
"""

from collections.abc import Sequence

from robust0.auditing.interval import accuracy
from robust0.comparing.sides import Asked, CertificateSide, Common, common_images
from robust0.comparison import (
    LETTERS,
    PAIRED,
    ComparedCurve,
    ComparedSide,
    ComparisonResults,
)
from robust0.gate.certified import CERTIFIED, CertificateBaseline
from robust0.proofs import CertifySettings
from robust0.records import CLEAN, CurvePoint
from robust0.wording import CERTIFIED as PROVED
from robust0.wording import ONE_CLASSIFIER, tidy


def compare_proofs(sides: Sequence[CertificateSide]) -> ComparisonResults:
    """Two or more certificates on the images that all of them have."""
    common = common_images(sides)
    own = [set(side.baseline.settings.pixels) for side in sides]
    radii = sorted(set().union(*own))
    shared = set.intersection(*own) or set(radii)
    asked = [_question(common, sides, None, 0)]
    asked += [_question(common, sides, None, pixels) for pixels in radii]
    for name in _rules(sides):
        asked += [_question(common, sides, name, pixels) for pixels in radii]
    headline = 1 + radii.index(max(shared))
    last = max(max(side.baseline.radii[side.baseline.settings.headline]) for side in sides)
    return ComparisonResults(
        kind="certificate",
        unit="pixel",
        images=len(common.ids),
        sides=tuple(_side(*pair, sides[0]) for pair in zip(LETTERS, sides, strict=False)),
        rows=tuple(common.row(one) for one in asked),
        headline=headline,
        curves=tuple(
            ComparedCurve(letter=letter, points=_curve(side.baseline, common, max(last, *radii)))
            for letter, side in zip(LETTERS, sides, strict=False)
        ),
        separating=common.separating(asked[headline]),
        notes=_notes(sides, common),
        meaning=(PROVED, ONE_CLASSIFIER, PAIRED),
    )


def _question(
    common: Common, sides: Sequence[CertificateSide], rule: str | None, pixels: int
) -> Asked:
    """Whose images are certified; by each one's own headline unless a rule is named."""
    known = [s.baseline.radii[rule or s.baseline.settings.headline] for s in sides]
    right = [[radius >= pixels for radius in radii] for radii in known]
    if rule is None and pixels == 0:
        return common.ask("clean", CLEAN, 0, right)
    return common.ask("certified", rule or CERTIFIED, pixels, right)


def _rules(sides: Sequence[CertificateSide]) -> list[str]:
    """Classifiers that all have, but for one that is the headline of all."""
    first = sides[0].baseline
    heads = {side.baseline.settings.headline for side in sides}
    return [
        name
        for name in first.radii
        if heads != {name} and all(name in side.baseline.radii for side in sides)
    ]


def _side(letter: str, side: CertificateSide, first: CertificateSide) -> ComparedSide:
    base = side.baseline
    subject, settings = base.subject, base.settings
    details = {tidy(key): str(value) for key, value in settings.details.items()}
    return ComparedSide(
        letter=letter,
        source=side.source,
        model=subject.model,
        arch=subject.arch,
        method=subject.method,
        sha256=subject.sha256,
        images=len(base.ids),
        identity=f"{settings.kind} certificate, {tidy(settings.headline)}, "
        f"{len(base.ids):,} images",
        unreliable=(),
        differs=_differs(first.baseline.settings, settings),
        settings={
            "data": f"{subject.dataset} {subject.split}",
            "data fingerprint": subject.data_fingerprint,
            "images": f"{len(base.ids):,}",
            "certificate": settings.kind,
            "rule": settings.headline,
            **details,
            "pixels asked about": ", ".join(str(value) for value in settings.pixels),
            "device; torch": f"{settings.device}; {settings.torch}",
            "robust0": base.robust0,
        },
    )


def _curve(base: CertificateBaseline, common: Common, last: int) -> tuple[CurvePoint, ...]:
    radii = dict(zip(base.ids, base.radii[base.settings.headline], strict=True))
    own = [radii[image] for image in common.ids]
    counts = [sum(radius >= pixels for radius in own) for pixels in range(last + 1)]
    return tuple(
        CurvePoint(budget=pixels, robust=accuracy(count, len(own)))
        for pixels, count in enumerate(counts)
    )


def _differs(one: CertifySettings, other: CertifySettings) -> tuple[str, ...]:
    """Where the proofs are not of one kind."""
    pairs = [("kind", str(one.kind), str(other.kind)), ("rule", one.headline, other.headline)]
    pairs += [
        (key, str(one.details.get(key)), str(other.details.get(key)))
        for key in ("alpha", "condition")
    ]
    return tuple(f"{name} {tidy(a, 40)} -> {tidy(b, 40)}" for name, a, b in pairs if a != b)


def _notes(sides: Sequence[CertificateSide], common: Common) -> tuple[str, ...]:
    if all(len(side.baseline.ids) == len(common.ids) for side in sides):
        return ()
    own = ", ".join(
        f"{letter} has {len(side.baseline.ids):,}"
        for letter, side in zip(LETTERS, sides, strict=False)
    )
    return (f"compared on the {len(common.ids):,} images that all have: {own}",)
