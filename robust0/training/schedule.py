"""Learning rates as pure functions of how far training is, so that resuming needs no state."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Protocol

from annotated_types import Gt, Le, Lt

from robust0.registry import Fraction, Registry, Share, setting


class Schedule(Protocol):
    """The learning rate over training."""

    kind: ClassVar[str]

    def scale(self, step: int, total: int) -> float:
        """The learning rate of this update (0-based) as a multiple of the recipe's."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The rate is multiplied by a factor at fractions of all iterations."""

    kind: ClassVar[str] = "steps"
    milestones: tuple[Annotated[float, Gt(0), Lt(1)], ...] = setting(
        (0.25, 0.75), "fractions of all iterations at which the rate drops", "App. G"
    )
    factor: Annotated[float, Gt(0), Le(1)] = setting(0.1, "multiplier per drop", "App. G")

    def __post_init__(self) -> None:
        if any(first >= second for first, second in pairwise(self.milestones)):
            raise ValueError("milestones must rise")

    def scale(self, step: int, total: int) -> float:
        """The learning rate of this update (0-based) as a multiple of the recipe's."""
        return self.factor ** sum(step >= milestone * total for milestone in self.milestones)


@dataclass(frozen=True, slots=True)
class OneCycle:
    """The rate rises linearly to its peak, then falls in a line or a half cosine."""

    kind: ClassVar[str] = "one-cycle"
    peak: Fraction = setting(1.0, "highest rate, as a fraction of lr")
    warmup: Share = setting(0.2, "fraction of all iterations spent rising")
    start: Fraction = setting(0.1, "first rate, as a fraction of the highest")
    end: Fraction = setting(0.0, "last rate, as a fraction of the highest")
    shape: Literal["linear", "cosine"] = setting("linear", "form of the descent")

    def scale(self, step: int, total: int) -> float:
        """The learning rate of this update (0-based) as a multiple of the recipe's."""
        rising = self.warmup * total
        if step < rising:
            return self.peak * (self.start + (1 - self.start) * step / rising)
        done = (step - rising) / (total - rising)
        left = 0.5 * (1 + math.cos(math.pi * done)) if self.shape == "cosine" else 1 - done
        return self.peak * (self.end + (1 - self.end) * left)


SCHEDULES: Registry[Schedule] = Registry("schedule", [Steps, OneCycle])
