"""Where training targets come from. Targets are always distributions; one-hot is a special case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from robust0.lazy import torch
from robust0.registry import Fraction, Registry, Share, setting

if TYPE_CHECKING:
    from torch import Tensor


class Targets(Protocol):
    """The targets of a run, with whatever is remembered per training image.

    Rows are positions in the training set.
    """

    def current(self, rows: Tensor) -> Tensor:
        """(B, K) targets as they stand, for the inner attack."""

    def observe(
        self, rows: Tensor, logits: Tensor | None, progress: float
    ) -> tuple[Tensor, Tensor]:
        """Targets (B, K) and weights (B,) for the loss, after learning from these predictions.

        Predictions are only made where ``learned`` is not None.
        """

    def learned(self) -> Tensor | None:
        """The table to be saved and shared between processes; None if nothing is learned."""


Forward = Literal["noisy", "clean", "adversarial"]


class LabelSource(Protocol):
    """The settings of targets; ``input`` names the forward they learn from, if they do."""

    kind: ClassVar[str]

    @property
    def input(self) -> Forward | None:
        """The forward whose predictions are learned from; None: nothing is learned."""

    def build(self, labels: Tensor, classes: int) -> Targets:
        """The targets of a training set with these classes (N,)."""


@dataclass(frozen=True, slots=True)
class HardLabels:
    """One-hot targets."""

    kind: ClassVar[str] = "hard"
    source: ClassVar[str] = "Sec. 5.1"
    input: ClassVar[None] = None

    def build(self, labels: Tensor, classes: int) -> Targets:
        """One-hot targets."""
        return FixedTargets(labels, classes)


@dataclass(frozen=True, slots=True)
class SmoothedLabels:
    """Label smoothing [Szegedy16]: (1 - amount) one-hot + amount / classes."""

    kind: ClassVar[str] = "smoothed"
    source: ClassVar[str] = "[Szegedy16]"
    input: ClassVar[None] = None
    amount: Fraction = setting(0.1, "share spread evenly over all classes", "[Szegedy16]")

    def build(self, labels: Tensor, classes: int) -> Targets:
        """Targets with the share spread out."""
        return FixedTargets(labels, classes, self.amount)


@dataclass(frozen=True, slots=True)
class SelfAdaptiveLabels:
    """S: a running mean of the model's own predictions per image, with confidence weights."""

    kind: ClassVar[str] = "self-adaptive"
    source: ClassVar[str] = "Sec. 5.1, Alg. 1"
    momentum: Share = setting(0.9, "share of the old target kept at each update", "Table 15")
    start: Fraction = setting(
        0.5, "fraction of all epochs after which targets move", "App. G, Table 14"
    )
    input: Forward = setting(
        "noisy",
        "forward whose prediction is averaged; clean costs one more if there is noise",
        "Alg. 3",
    )

    def build(self, labels: Tensor, classes: int) -> Targets:
        """A table that starts one-hot."""
        return LearnedTargets(labels, classes, momentum=self.momentum, start=self.start)


LABELS: Registry[LabelSource] = Registry(
    "label source", [HardLabels, SmoothedLabels, SelfAdaptiveLabels]
)


class FixedTargets:
    """One-hot targets, optionally smoothed by a constant amount."""

    def __init__(self, labels: Tensor, classes: int, amount: float = 0.0) -> None:
        self._labels = labels
        self._classes = classes
        self._amount = amount

    def current(self, rows: Tensor) -> Tensor:
        """(B, K) fixed targets."""
        hard = one_hot(self._labels[rows], self._classes)
        return (
            hard if self._amount == 0 else (1 - self._amount) * hard + self._amount / self._classes
        )

    def observe(
        self,
        rows: Tensor,
        logits: Tensor | None,  # noqa: ARG002
        progress: float,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        """Fixed targets with weight one."""
        return self.current(rows), torch.ones(len(rows), device=rows.device)

    def learned(self) -> Tensor | None:
        """Nothing is learned."""
        return None


class LearnedTargets:
    """Targets that drift towards the model's own predictions [Huang20; Fast-LS, Alg. 1].

    Before ``start`` (a fraction of training) targets are one-hot with weight one, which is plain
    cross entropy; from then on each target is a moving average of predictions, and confident
    targets weigh more.
    """

    def __init__(self, labels: Tensor, classes: int, *, momentum: float, start: float) -> None:
        self.table = one_hot(labels, classes)
        self._momentum = momentum
        self._start = start

    def current(self, rows: Tensor) -> Tensor:
        """(B, K) targets before this step's update."""
        return self.table[rows]

    def observe(
        self, rows: Tensor, logits: Tensor | None, progress: float
    ) -> tuple[Tensor, Tensor]:
        """Update, then use: the weight of an image is the largest entry of its target."""
        if progress >= self._start and logits is not None:
            prediction = logits.detach().float().softmax(dim=1)
            self.table[rows] = torch.lerp(prediction, self.table[rows], self._momentum)
        target = self.table[rows]
        return target, target.amax(dim=1)

    def learned(self) -> Tensor | None:
        """The table of targets (N, K)."""
        return self.table


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """(N,) class indices as (N, K) float32 distributions."""
    return torch.nn.functional.one_hot(labels, classes).to(torch.float32)
