"""The l0 threat model: the only place that counts, views and checks sites.

Images are (B, C, H, W) float32 in [0, 1] everywhere in robust0. A *site* is what one unit of budget
buys: a pixel (all its channels) or a feature (one channel of one pixel). Attacks see every image as
(B, g, S), with S sites of g values each, and therefore have no branch for the unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robust0.errors import RecipeError
from robust0.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.records import Unit


@dataclass(frozen=True, slots=True)
class Threat:
    """At most ``budget`` sites may differ from the clean image, each in any way inside the box."""

    pixels: int | None = None
    features: int | None = None

    def __post_init__(self) -> None:
        if (self.pixels is None) == (self.features is None):
            raise RecipeError(
                "a threat needs either a pixel or a feature budget",
                "give one of them, for example pixels: 20",
            )
        if self.budget < 1:
            raise RecipeError(
                f"the budget must be at least 1 {self.unit}, got {self.budget}",
                "use 1 or more; a budget of 0 is the clean accuracy",
            )

    @classmethod
    def of(cls, budget: int, unit: Unit = "pixel") -> Threat:
        """The threat with this budget in this unit."""
        if unit not in ("pixel", "feature"):
            raise RecipeError(f"there is no unit {unit!r}", "count in pixel or feature")
        return cls(pixels=budget) if unit == "pixel" else cls(features=budget)

    @property
    def unit(self) -> Unit:
        """What is counted."""
        return "pixel" if self.pixels is not None else "feature"

    @property
    def budget(self) -> int:
        """How many sites may change (k in the papers)."""
        value = self.pixels if self.pixels is not None else self.features
        return value if value is not None else 0

    def __str__(self) -> str:
        return f"{self.budget} {self.unit}{'' if self.budget == 1 else 's'}"

    def shape(self, images: Tensor) -> tuple[int, int]:
        """(g, S): values per site and sites per image."""
        _, channels, height, width = images.shape
        pixels = height * width
        return (channels, pixels) if self.unit == "pixel" else (1, channels * pixels)

    def check(self, images: Tensor) -> None:
        """Refuse a budget larger than the image."""
        sites = self.shape(images)[1]
        if self.budget > sites:
            raise RecipeError(
                f"the budget of {self} exceeds the {sites} {self.unit}s of an image",
                f"use a budget between 1 and {sites}",
            )

    def view(self, images: Tensor) -> Tensor:
        """(B, C, H, W) as (B, g, S)."""
        return images.reshape(len(images), *self.shape(images))

    def changed(self, clean: Tensor, other: Tensor) -> Tensor:
        """(B, S) bool: the sites where any channel differs, from (B, C, H, W) images."""
        return (self.view(clean) != self.view(other)).any(dim=1)

    def count(self, clean: Tensor, other: Tensor) -> Tensor:
        """(B,) how many sites differ. Channels are never summed: +a and -a do not cancel."""
        return self.changed(clean, other).sum(dim=1)


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
