"""Cover by masks: look at the image with every few lattices hidden, then under two masks at once.

After PatchCleanser's double masking, with unions of pixel lattices in place of patches.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from math import comb

import torch
from torch import Tensor

from robust0.errors import RecipeError

Mask = tuple[int, ...]  # the lattices hidden, in rising order
Classify = Callable[[Sequence[Mask]], Sequence[int]]  # one image under many masks: their labels


@dataclass(frozen=True, slots=True)
class Look:
    """A label, or none, and the masked images that were classified to find it."""

    label: int | None
    passes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleMasking:
    """An answer that ``pixels`` changed pixels cannot move where its certificate holds.

    The pixels are split into lattices; a mask hides ``pixels`` of them. So some mask hides all
    changed pixels, whichever they are. Every value of ``pixels`` makes a classifier of its own.

    ``classify`` must be a function of what a mask leaves visible: the same visible pixels give the
    same label, whatever is hidden and whatever else is in the call.

    Attributes:
        lattices: How many disjoint sets the pixels are split into.
        pixels: How many pixels may change.
        rows: The most masks in one call of ``classify``.
    """

    lattices: int
    pixels: int
    rows: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.pixels <= self.lattices or self.rows < 1:
            raise RecipeError(
                f"{self.lattices} lattices cannot cover {self.pixels} changed pixels "
                f"in calls of {self.rows}.",
                "Take from one pixel to as many as there are lattices, and at least one row.",
            )

    @property
    def passes(self) -> int:
        """The masked images a certificate looks at; no answer needs more."""
        return sum(comb(self.lattices, size) for size in self._sizes())

    def unions(self) -> Iterator[Mask]:
        """Every union of two masks once, the smallest first: the masks themselves lead."""
        for size in self._sizes():
            yield from combinations(range(self.lattices), size)

    def masks(self) -> Iterator[Mask]:
        """Every mask."""
        return combinations(range(self.lattices), self.pixels)

    def answer(self, classify: Classify) -> Look:
        """The class all masks agree on; else a dissenter's, if no second mask changes it.

        Where no dissenting mask is confirmed under every second mask, the majority's class stands,
        the smallest label of equals. Masks are tried in order, and no union is classified twice.
        """
        seen = _Seen(classify, self.rows)
        first = dict(seen.look(self.masks()))
        counts: dict[int, int] = {}
        for label in first.values():
            counts[label] = counts.get(label, 0) + 1
        majority = min(counts, key=lambda label: (-counts[label], label))
        for mask, label in first.items():
            # Hiding the same mask twice shows the dissenter's own label: there is no other
            # class that all second masks could agree on.
            if label != majority and seen.agree((_union(mask, m) for m in self.masks()), label):
                return Look(label, seen.passes)
        return Look(majority, seen.passes)

    def certify(self, classify: Classify) -> Look:
        """The label y if every union of two masks shows y, else none.

        It stops after the call in which a first union dissents. If it returns y, the answer is y
        for every image that differs in at most ``pixels`` pixels. Some mask m hides all that
        differs. Under m and any second mask, that image and this one look the same. So it is
        classified y there, and under m alone.

        1. If all masks agree, they agree with m, on y.
        2. A dissenter with another class than y is never confirmed: under m it shows y.
        3. If the majority is y, only such dissenters exist, and y stands.
        4. If it is not, m dissents and is confirmed, unless another dissenter with class y was
           before it. Either way the answer is y.
        """
        seen = _Seen(classify, self.rows)
        shown = seen.look(self.unions())
        _, first = next(shown)
        agreed = all(label == first for _, label in shown)
        return Look(first if agreed else None, seen.passes)

    def _sizes(self) -> range:
        return range(self.pixels, min(2 * self.pixels, self.lattices) + 1)


@dataclass(slots=True)
class _Seen:
    """The labels found so far; masks are passed on in calls of at most ``rows``."""

    classify: Classify
    rows: int
    labels: dict[Mask, int] = field(default_factory=dict)

    @property
    def passes(self) -> int:
        return len(self.labels)

    def look(self, masks: Iterable[Mask]) -> Iterator[tuple[Mask, int]]:
        """Each mask with its label, in order; nothing is classified before it is asked for."""
        waiting = iter(masks)
        while batch := list(islice(waiting, self.rows)):
            new = [mask for mask in dict.fromkeys(batch) if mask not in self.labels]
            if new:
                self.labels.update(zip(new, map(int, self.classify(new)), strict=True))
            for mask in batch:
                yield mask, self.labels[mask]

    def agree(self, masks: Iterable[Mask], label: int) -> bool:
        """Whether all show this label."""
        return all(shown == label for _, shown in self.look(masks))


def visible_pixels(owner: Tensor, masks: Sequence[Mask]) -> Tensor:
    """(M, H * W) bool: what each mask leaves of the pixels, given the lattice of each pixel."""
    hidden = [torch.isin(owner, owner.new_tensor(mask)) for mask in masks]
    return ~torch.stack(hidden)


def _union(one: Mask, other: Mask) -> Mask:
    return tuple(sorted({*one, *other}))
