"""Learning rates as pure functions of how far training is, so that resuming needs no state."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class StepSchedule:
    """The rate is multiplied by a factor at fractions of all iterations."""

    milestones: tuple[float, ...] = (0.25, 0.75)
    factor: float = 0.1

    def scale(self, step: int, total: int) -> float:
        """The learning rate of this step (0-based) as a multiple of the recipe's."""
        return self.factor ** sum(step >= milestone * total for milestone in self.milestones)


@dataclass(frozen=True, slots=True)
class OneCycleSchedule:
    """The rate rises linearly, then falls in a line or a half cosine."""

    warmup: float = 0.2
    start: float = 0.1
    end: float = 0.0
    shape: Literal["linear", "cosine"] = "linear"

    def scale(self, step: int, total: int) -> float:
        """The learning rate of this step (0-based) as a multiple of the recipe's."""
        rising = self.warmup * total
        if step < rising:
            return self.start + (1 - self.start) * step / rising
        done = (step - rising) / (total - rising)
        left = 0.5 * (1 + math.cos(math.pi * done)) if self.shape == "cosine" else 1 - done
        return self.end + (1 - self.end) * left


Schedule = StepSchedule | OneCycleSchedule


@dataclass(frozen=True, slots=True)
class Optim:
    """SGD or AdamW; biases and normalisation weights may be spared the decay."""

    kind: Literal["sgd", "adamw"]
    lr: float
    weight_decay: float
    decay_all: bool
    options: dict[str, Any]  # momentum and nesterov, or betas and eps

    def build(self, network: nn.Module) -> torch.optim.Optimizer:
        """The optimiser; its learning rate is set before every step."""
        weights = [weight for weight in network.parameters() if weight.requires_grad]
        groups = [{"params": weights, "weight_decay": self.weight_decay}]
        if not self.decay_all:
            groups = [
                {"params": [w for w in weights if w.ndim > 1], "weight_decay": self.weight_decay},
                {"params": [w for w in weights if w.ndim <= 1], "weight_decay": 0.0},
            ]
        make = torch.optim.SGD if self.kind == "sgd" else torch.optim.AdamW
        return make(groups, lr=self.lr, **self.options)
