"""Where training targets come from. Targets are always distributions; one-hot is a special case."""

from typing import Protocol

import torch
from torch import Tensor


class LabelSource(Protocol):
    """Owns whatever it remembers per training image; rows are positions in the training set."""

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


class HardLabels:
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


class SelfAdaptiveLabels:
    """Targets that drift towards the model's own predictions [Huang20; Fast-LS, Alg. 1].

    Before ``start`` (a fraction of training) targets are one-hot with weight one, which is plain
    cross entropy; from then on each target is a moving average of predictions, and confident
    targets weigh more.
    """

    def __init__(
        self, labels: Tensor, classes: int, *, momentum: float = 0.9, start: float = 0.5
    ) -> None:
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
