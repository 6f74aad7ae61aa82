"""The threat contract: how far an image may be from the clean one, in a unit, up to a budget.

Images are (B, C, H, W) float32 in [0, 1] everywhere in robust0. The engine, the judge, the curve
and stored runs know a threat by what stands here; what a unit is made of is known to its own
module and to the attacks that serve it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from robust0.errors import RecipeError
from robust0.registry import Registry
from robust0.units import plural

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.threats.perturbation import Perturbation

# Which of these images (N, C, H, W), each a changed form of the row named, still fool the model.
Holds = Callable[[list[int], "Tensor"], list[bool]]


@dataclass(frozen=True, slots=True)
class Threat(ABC):
    """An image may lie at most ``budget`` from the clean one, and inside the box [0, 1]."""

    kind: ClassVar[str]
    sized: ClassVar[bool] = False  # the unit has a size, as patch:4 has
    budget: float

    @classmethod
    def of(cls, budget: float, unit: str = "pixel") -> Threat:
        """The threat with this budget in this unit; ``patch:4`` is the unit patch of size 4."""
        kind, colon, size = unit.partition(":")
        found = UNITS.find(kind)
        if not colon:
            return found(budget)
        if not found.sized or not (size.isascii() and size.isdigit() and 0 < int(size) < 10**6):
            raise RecipeError(
                f"there is no unit {unit!r}",
                f"write {kind}:4 for example" if found.sized else f"write {kind}",
            )
        return found(budget, int(size))  # type: ignore[call-arg] # sized threats take a size

    @property
    def unit(self) -> str:
        """What the budget counts."""
        return self.kind

    def __str__(self) -> str:
        return f"{self.budget} {plural(self.unit, self.budget)}"

    @abstractmethod
    def check(self, images: Tensor) -> None:
        """Refuse a budget or a unit that does not fit such images."""

    @abstractmethod
    def shape(self, images: Tensor) -> tuple[int, int]:
        """(g, S): how attacks see an image, as S sites of g values each."""

    @abstractmethod
    def view(self, images: Tensor) -> Tensor:
        """(B, C, H, W) images as (B, g, S)."""

    @abstractmethod
    def image(self, sites: Tensor, image_shape: tuple[int, int, int]) -> Tensor:
        """(B, g, S) as (B, C, H, W): the inverse of ``view``."""

    @abstractmethod
    def distance(self, clean: Tensor, other: Tensor) -> Tensor:
        """(B,) how far each image is from its clean one, in units of the budget."""

    def contains(self, clean: Tensor, other: Tensor) -> Tensor:
        """(B,) bool: whether the distance is within the budget; the box is the judge's matter."""
        return self.distance(clean, other) <= self.budget

    @abstractmethod
    def encode(self, clean: Tensor, other: Tensor) -> Perturbation:
        """What differs between two (C, H, W) images, as it is stored."""

    @abstractmethod
    def shrink(
        self, clean: Tensor, hits: Tensor, slope: Tensor, holds: Holds, width: int
    ) -> Tensor:
        """Hits (B, C, H, W) at a smaller distance, as small as a greedy search makes it.

        Args:
            clean: the images they came from.
            hits: images that fool the model.
            slope: gradient of the margin at the hits.
            holds: asks the model; at most ``width`` images at a time.
            width: of one call.
        """


UNITS: Registry[Threat] = Registry("unit", [])
