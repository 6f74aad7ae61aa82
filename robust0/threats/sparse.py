"""Sparse (l0) threats: at most k sites may change, each in any way inside the box.

A *site* is what one unit of budget buys: a pixel (all its channels), a feature (one channel of one
pixel), a row or a column of pixels, or an aligned square patch. Attacks see every image as (B, g,
S), with S sites of g values each, and therefore have no branch for the unit.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from robust0.errors import RecipeError
from robust0.lazy import torch
from robust0.threats.base import UNITS, Holds, Threat
from robust0.threats.shrink import give_back
from robust0.units import plural

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.threats.perturbation import Perturbation


@dataclass(frozen=True, slots=True)
class SparseThreat(Threat):
    """At most ``budget`` sites may differ from the clean image; the distance is their number."""

    budget: int

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise RecipeError(
                f"the budget must be at least 1 {plural(self.unit, 1)}, got {self.budget}",
                "use 1 or more; a budget of 0 is the clean accuracy",
            )

    @abstractmethod
    def shape(self, images: Tensor) -> tuple[int, int]:
        """(g, S): values per site and sites per image."""

    def check(self, images: Tensor) -> None:
        """Refuse a budget larger than the image."""
        sites = self.shape(images)[1]
        if self.budget > sites:
            raise RecipeError(
                f"the budget of {self} exceeds the {sites} {plural(self.unit, sites)} of an image",
                f"use a budget between 1 and {sites}",
            )

    def view(self, images: Tensor) -> Tensor:
        """(B, C, H, W) as (B, g, S)."""
        return images.reshape(len(images), *self.shape(images))

    def image(self, sites: Tensor, image_shape: tuple[int, int, int]) -> Tensor:
        """(B, g, S) as (B, C, H, W)."""
        return sites.reshape(len(sites), *image_shape)

    def changed(self, clean: Tensor, other: Tensor) -> Tensor:
        """(B, S) bool: the sites where any value differs, from (B, C, H, W) images."""
        return (self.view(clean) != self.view(other)).any(dim=1)

    def distance(self, clean: Tensor, other: Tensor) -> Tensor:
        """(B,) how many sites differ. Values are never summed: +a and -a do not cancel."""
        return self.changed(clean, other).sum(dim=1)

    def encode(self, clean: Tensor, other: Tensor) -> Perturbation:
        """The changed pixels."""
        return _encoded(clean.flatten(1), other.flatten(1))

    def shrink(
        self, clean: Tensor, hits: Tensor, slope: Tensor, holds: Holds, width: int
    ) -> Tensor:
        """Give back the sites that a hit does not need."""
        changed = self.changed(clean, hits).cpu()
        effect = (self.view(slope) * self.view(clean - hits)).sum(dim=1).cpu()
        # First those whose return changes the margin least, to first order.
        orders = []
        for moved, gain in zip(changed, effect, strict=True):
            sites = moved.nonzero()[:, 0]
            orders.append(sites[gain[sites].argsort(stable=True)].tolist())
        before, after = self.view(clean), self.view(hits)

        def without(rows: list[int], given: list[list[int]]) -> Tensor:
            """These hits with some sites as they were in the clean image."""
            back = torch.zeros(len(rows), 1, after.shape[2], dtype=torch.bool)
            for place, sites in enumerate(given):
                back[place, :, sites] = True
            index = torch.tensor(rows, device=clean.device)
            less = torch.where(back.to(clean.device), before[index], after[index])
            return self.image(less, (clean.shape[1], clean.shape[2], clean.shape[3]))

        return give_back(orders, without, holds, width)


@UNITS.add
@dataclass(frozen=True, slots=True)
class PixelThreat(SparseThreat):
    """Pixels, each with all its channels."""

    kind: ClassVar[str] = "pixel"

    def shape(self, images: Tensor) -> tuple[int, int]:
        """Channels and pixels."""
        _, channels, height, width = images.shape
        return channels, height * width


@UNITS.add
@dataclass(frozen=True, slots=True)
class FeatureThreat(SparseThreat):
    """Single values: one channel of one pixel."""

    kind: ClassVar[str] = "feature"

    def shape(self, images: Tensor) -> tuple[int, int]:
        """One value each."""
        _, channels, height, width = images.shape
        return 1, channels * height * width

    def encode(self, clean: Tensor, other: Tensor) -> Perturbation:
        """The changed values."""
        return _encoded(clean.reshape(1, -1), other.reshape(1, -1))


@UNITS.add
@dataclass(frozen=True, slots=True)
class RowThreat(SparseThreat):
    """Whole rows of pixels, as a sensor that reads line by line loses them."""

    kind: ClassVar[str] = "row"

    def shape(self, images: Tensor) -> tuple[int, int]:
        """The values of a row, and rows."""
        _, channels, height, width = images.shape
        return channels * width, height

    def view(self, images: Tensor) -> Tensor:
        """(B, C, H, W) as (B, C * W, H)."""
        return images.transpose(2, 3).reshape(len(images), *self.shape(images))

    def image(self, sites: Tensor, image_shape: tuple[int, int, int]) -> Tensor:
        """(B, C * W, H) as (B, C, H, W)."""
        channels, height, width = image_shape
        return sites.reshape(len(sites), channels, width, height).transpose(2, 3).contiguous()


@UNITS.add
@dataclass(frozen=True, slots=True)
class ColumnThreat(SparseThreat):
    """Whole columns of pixels."""

    kind: ClassVar[str] = "column"

    def shape(self, images: Tensor) -> tuple[int, int]:
        """The values of a column, and columns."""
        _, channels, height, width = images.shape
        return channels * height, width


@UNITS.add
@dataclass(frozen=True, slots=True)
class PatchThreat(SparseThreat):
    """Square patches of an aligned grid, as stickers or dead blocks change them."""

    kind: ClassVar[str] = "patch"
    sized: ClassVar[bool] = True
    size: int = 4

    @property
    def unit(self) -> str:
        """The size belongs to the unit: budgets of other patches do not compare."""
        return f"{self.kind}:{self.size}"

    def check(self, images: Tensor) -> None:
        """The grid must cover the image."""
        height, width = images.shape[2:]
        if height % self.size or width % self.size:
            raise RecipeError(
                f"{plural(self.unit, 2)} do not tile an image of {height} x {width} pixels",
                "choose a size that divides both sides",
            )
        SparseThreat.check(self, images)

    def shape(self, images: Tensor) -> tuple[int, int]:
        """The values of a patch, and patches row by row."""
        _, channels, height, width = images.shape
        area = self.size**2
        return channels * area, height * width // area

    def view(self, images: Tensor) -> Tensor:
        """(B, C, H, W) as (B, C * p * p, patches)."""
        count, channels, height, width = images.shape
        p = self.size
        grid = images.reshape(count, channels, height // p, p, width // p, p)
        return grid.permute(0, 1, 3, 5, 2, 4).reshape(count, *self.shape(images))

    def image(self, sites: Tensor, image_shape: tuple[int, int, int]) -> Tensor:
        """(B, C * p * p, patches) as (B, C, H, W)."""
        channels, height, width = image_shape
        p = self.size
        grid = sites.reshape(len(sites), channels, p, p, height // p, width // p)
        return grid.permute(0, 1, 4, 2, 5, 3).reshape(len(sites), *image_shape)


def _encoded(clean: Tensor, other: Tensor) -> Perturbation:
    """From (g, S) values."""
    from robust0.threats.perturbation import Perturbation

    places = (clean != other).any(dim=0).nonzero()[:, 0]
    values = other[:, places].T.contiguous().cpu().numpy()
    return Perturbation(places.int().cpu().numpy(), values)


def top_mask(scores: Tensor, size: int) -> Tensor:
    """(B, S) bool with exactly ``size`` ones at each row's largest scores."""
    chosen = scores.topk(size, dim=1, sorted=False).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, chosen, value=True)


def free_sites(used: Tensor, ranks: Tensor) -> Tensor:
    """The sites with these ranks (B, n) among those not in ``used`` (B, k)."""
    ordered = used.sort(dim=1).values
    # Entry j has ordered[j] - j free sites before it; a rank passes every entry it reaches.
    before = ordered - torch.arange(used.shape[1], device=used.device)
    return ranks + torch.searchsorted(before, ranks, right=True)


def corners(images: Tensor, direction: Tensor) -> Tensor:
    """The box corner of each value in the direction of a sign: 1 where positive, else 0."""
    return (direction > 0).to(images.dtype)
