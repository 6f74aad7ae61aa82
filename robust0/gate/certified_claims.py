"""Whether the certificate of a card holds: its papers agree, and proving again gives as much."""

from collections.abc import Sequence

from robust0.auditing.interval import accuracy
from robust0.gate.certified import CERTIFIED, CertificateBaseline
from robust0.gate.claims import Comparison, Line, claim_line
from robust0.gate.metrics import Metric
from robust0.records import CLEAN
from robust0.zoo.cards import Card
from robust0.zoo.proved import ProofSummary
from robust0.zoo.scores import RobustScore, Score, percents


def certificate_papers(card: Card, claim: ProofSummary, stored: CertificateBaseline) -> list[str]:
    """Where a card and its radii contradict each other."""
    settings, subject = stored.settings, stored.subject
    pairs = [
        ("sha256", subject.sha256, card.sha256),
        ("kind", settings.kind, claim.kind),
        ("headline", settings.headline, claim.headline),
        ("dataset", subject.dataset, claim.dataset),
        ("images", len(stored.ids), claim.images),
        ("certificates tried", settings.tried, claim.tried),
        ("clean", Score(**_percents(stored, Metric(CLEAN), 0)), claim.clean),
        ("certified", _scores(stored), claim.certified),
    ]
    return [f"certificate: another {name} in the radii than on the card" for name, a, b in pairs
            if a != b]  # fmt: skip


def compare_certificates(stored: CertificateBaseline, again: CertificateBaseline) -> Comparison:
    """Stored radii against those of a second certificate of some or all of the same images."""
    place = {image: row for row, image in enumerate(stored.ids)}
    rows = [place[image] for image in again.ids]
    headline = stored.settings.headline
    lines = [_line(CLEAN, headline, 0, stored, again, rows)]
    for name in again.radii:
        title = CERTIFIED if name == headline else f"{CERTIFIED}, {name}"
        lines += [_line(title, name, k, stored, again, rows) for k in stored.settings.pixels]
    pairs = [
        (stored.radii[name][row], fresh)
        for name, radii in again.radii.items()
        for row, fresh in zip(rows, radii, strict=True)
    ]
    return Comparison(
        tuple(lines), verdicts=len(pairs), differing=sum(old != new for old, new in pairs)
    )


def _line(
    title: str,
    name: str,
    pixels: int,
    stored: CertificateBaseline,
    again: CertificateBaseline,
    rows: Sequence[int],
) -> Line:
    claimed = _bits([stored.radii[name][row] for row in rows], pixels)
    return claim_line(title, pixels, claimed, _bits(again.radii[name], pixels))


def _bits(radii: Sequence[int], pixels: int) -> str:
    return "".join("1" if radius >= pixels else "0" for radius in radii)


def _scores(stored: CertificateBaseline) -> tuple[RobustScore, ...]:
    return tuple(
        RobustScore(name=name, budget=k, **_percents(stored, Metric(name), k))
        for name in stored.settings.classifiers
        for k in stored.settings.pixels
    )


def _percents(stored: CertificateBaseline, metric: Metric, pixels: int) -> dict[str, float]:
    held = stored.certified(metric, pixels)
    return percents(accuracy(sum(held), len(held)))
