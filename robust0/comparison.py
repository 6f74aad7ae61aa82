"""What ``robust0 compare`` found: every number of several subjects on the images they share.

No torch here. A subject is called by a letter, A the first; differences are another's minus A's.
"""

from typing import Final, Literal

from robust0.records import CLEAN, Accuracy, Amount, CurvePoint, Frozen, Unit
from robust0.units import counted
from robust0.wording import ensemble_name, tidy

LETTERS: Final = "ABCDEFGH"
_MOST_NAMED = 4  # caveats spelled out in a verdict; all of them are among the notes
PAIRED = (
    "A difference is paired: both are asked about the same images. Its interval is Newcombe's 95 % "
    "score interval for the choice of images; it is not corrected for the number of rows, and says "
    "nothing about another training run of the same recipe."
)


class ComparedSide(Frozen):
    """One subject: an audit or a certificate, and what its numbers rest on."""

    letter: str
    source: str  # what the user said
    model: str
    arch: str
    method: str | None
    sha256: str | None
    images: int  # its own, before the others were asked
    identity: str
    unreliable: tuple[str, ...]  # flags that make its numbers doubtful
    differs: tuple[str, ...]  # how it was searched or proved otherwise than the first
    settings: dict[str, str]


class PairedDifference(Frozen):
    """One subject against the first, in points of accuracy on the common images."""

    letter: str
    difference: float
    low: float
    high: float
    only_first: tuple[int, ...]  # images that the first survives, and this one does not
    only_other: tuple[int, ...]

    @property
    def sign(self) -> int:
        """1 or -1 where the interval excludes no difference, else 0."""
        return (self.low > 0) - (self.high < 0)


class ComparedRow(Frozen):
    """One number of every subject, on the same images."""

    kind: Literal["clean", "attack", "ensemble", "certified"]
    name: str
    budget: Amount
    shares: tuple[Accuracy, ...]  # in the order of the sides
    pairs: tuple[PairedDifference, ...]  # of all but the first

    @property
    def shown(self) -> str:
        """Its name as people write it."""
        return ensemble_name(self.name) if self.kind == "ensemble" else tidy(self.name, 40)

    def title(self, unit: Unit) -> str:
        """``sAA at 20 pixels``, ``clean``."""
        return CLEAN if self.kind == "clean" else f"{self.shown} at {counted(self.budget, unit)}"


class ComparedCurve(Frozen):
    """Accuracy over budgets on the common images; what holds at one holds up to the next."""

    letter: str
    points: tuple[CurvePoint, ...]


class SeparatingImage(Frozen):
    """An image that some of the subjects survive and others do not."""

    image: int
    label: int
    name: str  # of its class, where it is known
    survivors: str  # letters

    @property
    def title(self) -> str:
        """Its class in words: ``cat``, or ``class 3`` where classes are but numbered."""
        return f"class {self.label}" if self.name in {"", str(self.label)} else self.name


class ComparisonResults(Frozen):
    """compare.json, but for its schema and its verdicts."""

    kind: Literal["audit", "certificate"]
    unit: Unit
    images: int  # that all have in common
    sides: tuple[ComparedSide, ...]
    rows: tuple[ComparedRow, ...]
    headline: int  # which row the verdict is about
    curves: tuple[ComparedCurve, ...]
    separating: tuple[SeparatingImage, ...]  # under the headline
    notes: tuple[str, ...]  # what was left out, and what else is not the same
    meaning: tuple[str, ...]

    @property
    def main(self) -> ComparedRow:
        """The row the verdict is about."""
        return self.rows[self.headline]

    @property
    def caveats(self) -> tuple[str, ...]:
        """How the searches differ: numbers may differ for that reason alone."""
        several = len(self.sides) > 2
        return tuple(
            f"{side.letter}: {text}" if several else text
            for side in self.sides
            for text in side.differs
        )

    @property
    def differing(self) -> str:
        """What the caveats are about."""
        return f"the {'proofs' if self.kind == 'certificate' else 'searches'} differ"

    @property
    def survive(self) -> str:
        """What an image does that counts."""
        return "are certified" if self.kind == "certificate" else "survive"

    @property
    def verdicts(self) -> tuple[str, ...]:
        """A line per subject but the first."""
        return tuple(self._verdict(pair) for pair in self.main.pairs)

    def _verdict(self, pair: PairedDifference) -> str:
        row, first = self.main, self.sides[0].letter
        shares = dict(zip((side.letter for side in self.sides), row.shares, strict=True))
        words = {1: f"is better than {first}", -1: f"is worse than {first}", 0: ""}[pair.sign]
        words = (
            f"{pair.letter} {words}" if words else f"{first} and {pair.letter}: no difference shown"
        )
        numbers = f"{100 * shares[first].share:.1f} -> {100 * shares[pair.letter].share:.1f} %"
        about = (
            f"{words}: {row.title(self.unit)} {numbers}, {signed(pair.difference)} points "
            f"(95 %: {signed(pair.low)} to {signed(pair.high)}; {self.images:,} images, "
            f"{len(pair.only_first):,} {self.survive} only in {first}, "
            f"{len(pair.only_other):,} only in {pair.letter})"
        )
        return about + self._reservations(pair.letter)

    def _reservations(self, letter: str) -> str:
        sides = [side for side in self.sides if side.letter in (self.sides[0].letter, letter)]
        own = sides[-1].differs
        more = len(own) - _MOST_NAMED
        named = [*own[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]
        parts = [f"{self.differing}: {', '.join(named)}"] if named else []
        parts += [
            f"{side.letter} is unreliable: {', '.join(side.unreliable)}"
            for side in sides
            if side.unreliable
        ]
        return f" ({'; '.join(parts)})" if parts else ""

    def document(self) -> dict[str, object]:
        """The comparison as JSON."""
        body = self.model_dump(mode="json")
        return {"schema": 1, "kind": "robust0-comparison", "verdicts": list(self.verdicts)} | {
            "of": body.pop("kind"),
            **body,
        }


def signed(points: float) -> str:
    """``+1.2``, ``-0.4``, ``0.0``: never a negative nothing."""
    text = f"{points:+.1f}"
    return "0.0" if text in {"+0.0", "-0.0"} else text
