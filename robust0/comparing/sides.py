"""What is compared, in one form wherever it comes from: a run, a baseline, a card or Python."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Literal

from robust0.auditing.interval import accuracy
from robust0.auditing.rundata import CleanImages, RunData
from robust0.certifying.rundata import CertificateRun
from robust0.comparison import LETTERS, ComparedRow, PairedDifference, SeparatingImage
from robust0.errors import RunError
from robust0.gate.baseline import Baseline
from robust0.gate.certified import CertificateBaseline
from robust0.gate.paired import compare_pairs
from robust0.proofs import CertificateResults
from robust0.records import Amount, Results
from robust0.wording import class_names, tidy


@dataclass(frozen=True)
class AuditSide:
    """An audit: its verdicts per image, and its report and files where they are at hand."""

    source: str
    baseline: Baseline
    results: Results | None = None
    run: RunData | None = None

    @property
    def clean(self) -> CleanImages | None:
        """The images themselves."""
        return None if self.run is None else self.run.clean

    @property
    def classes(self) -> dict[int, str]:
        """Names of classes, where they are known."""
        return {} if self.results is None else class_names(self.results)


@dataclass(frozen=True)
class CertificateSide:
    """A certificate: the certified radius of every image, and its report where it is at hand."""

    source: str
    baseline: CertificateBaseline
    results: CertificateResults | None = None
    run: CertificateRun | None = None
    names: Mapping[int, str] = field(default_factory=dict)  # of classes, where no report tells

    @property
    def clean(self) -> CleanImages | None:
        """The images of its gallery: not all of them."""
        return None if self.run is None else self.run.clean

    @property
    def classes(self) -> dict[int, str]:
        """Names of classes, where they are known."""
        known = () if self.results is None else self.results.headline.classes
        return {**self.names, **{row.label: tidy(row.name, 60) for row in known}}


Side = AuditSide | CertificateSide
Kind = Literal["clean", "attack", "ensemble", "certified"]


@dataclass(frozen=True)
class Asked:
    """Which of the common images each side answers right under something."""

    kind: Kind
    name: str
    budget: Amount
    answers: Sequence[Sequence[bool]]  # by side, in the order of the common images


@dataclass(frozen=True)
class Common:
    """The images that all sides have, ascending."""

    sides: Sequence[Side]
    ids: tuple[int, ...]

    def ask(
        self, kind: Kind, name: str, budget: Amount, answers: Iterable[Sequence[bool]]
    ) -> Asked:
        """What is asked, from the answers of each side, in the order of its own images."""
        picked = []
        for side, own in zip(self.sides, answers, strict=True):
            known = dict(zip(side.baseline.ids, own, strict=True))
            picked.append([known[image] for image in self.ids])
        return Asked(kind, name, budget, picked)

    def row(self, asked: Asked) -> ComparedRow:
        """One number of every side, and each but the first against the first."""
        first, *others = asked.answers
        pairs = zip(LETTERS[1:], others, strict=False)
        return ComparedRow(
            kind=asked.kind,
            name=asked.name,
            budget=asked.budget,
            shares=tuple(accuracy(sum(own), len(own)) for own in asked.answers),
            pairs=tuple(self._pair(letter, first, own) for letter, own in pairs),
        )

    def _pair(self, letter: str, first: Sequence[bool], other: Sequence[bool]) -> PairedDifference:
        paired = compare_pairs(first, other)
        rows = list(zip(self.ids, first, other, strict=True))
        return PairedDifference(
            letter=letter,
            difference=0.0 - paired.drop,  # 0.0, never -0.0
            low=0.0 - paired.high,
            high=0.0 - paired.low,
            only_first=tuple(image for image, a, b in rows if a and not b),
            only_other=tuple(image for image, a, b in rows if b and not a),
        )

    def separating(self, asked: Asked) -> tuple[SeparatingImage, ...]:
        """The images that not all sides answer alike."""
        base = self.sides[0].baseline
        labels = dict(zip(base.ids, base.labels, strict=True))
        names = {k: v for side in reversed(self.sides) for k, v in side.classes.items()}
        return tuple(
            SeparatingImage(
                image=image,
                label=labels[image],
                name=names.get(labels[image], ""),
                survivors="".join(compress(LETTERS, right)),
            )
            for image, *right in zip(self.ids, *asked.answers, strict=True)
            if len(set(right)) > 1
        )


def common_images(sides: Sequence[Side]) -> Common:
    """The images all sides have; refuses none, and labels that differ."""
    ids = set(sides[0].baseline.ids).intersection(*(side.baseline.ids for side in sides[1:]))
    if not ids:
        raise RunError(
            "they have no image in common: " + "; ".join(_whose(side) for side in sides),
            "audit or certify all of them on the same images",
        )
    known = [dict(zip(side.baseline.ids, side.baseline.labels, strict=True)) for side in sides]
    wrong = sum(len({labels[image] for labels in known}) > 1 for image in ids)
    if wrong:
        raise RunError(
            f"they are about different images: {wrong:,} of {len(ids):,} common ids have other "
            "labels; " + "; ".join(_whose(side) for side in sides),
            "audit or certify all of them on the same data",
        )
    return Common(sides, tuple(sorted(ids)))


def _whose(side: Side) -> str:
    subject = side.baseline.subject
    return f"{tidy(side.source)} has {tidy(subject.dataset)} {tidy(subject.split)}"
