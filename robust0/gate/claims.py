"""Whether a card's claim holds: its papers agree, and attacking again finds what was found.

Equal hardware, libraries and thread counts give equal verdicts. Elsewhere rounding moves borderline
images both ways; the claim fails when significantly more images fall than were said to fall.
Pure, without torch: the audit itself is run by the caller.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from robust0.gate.baseline import Baseline
from robust0.gate.paired import ALPHA, mcnemar
from robust0.records import CLEAN, Amount, Report
from robust0.zoo.cards import Card

SAMPLE = 100  # images attacked again unless all are asked for


@dataclass(frozen=True, slots=True)
class Line:
    """One number on the images attacked again: what the card's verdicts say, what was found."""

    name: str  # clean, an attack or an ensemble
    budget: Amount
    images: int
    claimed: int  # images that withstood
    found: int
    lost: int  # said to withstand, fell now
    gained: int  # said to fall, withstands now

    @property
    def holds(self) -> bool:
        """Whether chance explains that more fell than was claimed."""
        return self.lost <= self.gained or mcnemar(self.lost, self.gained) >= ALPHA


@dataclass(frozen=True, slots=True)
class Comparison:
    """The claim against a second audit, verdict by verdict."""

    lines: tuple[Line, ...]
    verdicts: int  # of single attacks and of clean images
    differing: int

    @property
    def holds(self) -> bool:
        """Whether every number holds."""
        return all(line.holds for line in self.lines)


def papers(card: Card, report: Report, stored: Baseline) -> list[str]:
    """Where card, report and stored verdicts contradict each other."""
    found = card.problems(report)
    results = report.results
    if stored.settings != results.settings or stored.subject != results.subject:
        found.append("the stored verdicts are of another audit than the report")
        return found
    claims: list[tuple[str, Amount, int, str]] = [(CLEAN, 0, results.clean.count, stored.clean)]
    for result in results.budgets:
        bits = stored.at(result.budget)
        if bits is None:
            found.append(f"there are no stored verdicts at budget {result.budget}")
            continue
        claims += [
            (row.name, result.budget, row.robust.count, bits.robust.get(row.name, ""))
            for row in result.attacks
            if row.robust is not None
        ]
        claims += [
            (row.name, result.budget, row.robust.count, bits.union(row.name))
            for row in result.ensembles
            if row.name in bits.ensembles
        ]
    return found + [
        f"{name} at {budget}: {count} images in the report, {bits.count('1')} stored verdicts"
        for name, budget, count, bits in claims
        if bits.count("1") != count
    ]


def compare_claims(stored: Baseline, again: Baseline) -> Comparison:
    """Stored verdicts against those of an audit of some or all of the same images."""
    place = {image: row for row, image in enumerate(stored.ids)}
    rows = [place[image] for image in again.ids]
    lines = [claim_line(CLEAN, 0, _at(stored.clean, rows), again.clean)]
    singles = [lines[0]]
    for fresh in again.budgets:
        known = stored.at(fresh.budget)
        if known is None:
            continue
        for name, bits in fresh.robust.items():
            line = claim_line(name, fresh.budget, _at(known.robust[name], rows), bits)
            lines.append(line)
            singles.append(line)
        for name in fresh.ensembles:
            if name in known.ensembles:
                claimed = _at(known.union(name), rows)
                lines.append(claim_line(name, fresh.budget, claimed, fresh.union(name)))
    return Comparison(
        tuple(lines),
        verdicts=sum(line.images for line in singles),
        differing=sum(line.lost + line.gained for line in singles),
    )


def claim_line(name: str, budget: Amount, claimed: str, found: str) -> Line:
    """One number from a digit per image: what was claimed, and what was found."""
    pairs = list(zip(claimed, found, strict=True))
    return Line(
        name=name,
        budget=budget,
        images=len(pairs),
        claimed=claimed.count("1"),
        found=found.count("1"),
        lost=pairs.count(("1", "0")),
        gained=pairs.count(("0", "1")),
    )


def _at(bits: str, rows: Sequence[int]) -> str:
    return "".join(bits[row] for row in rows)
