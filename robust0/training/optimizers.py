"""Optimisers; biases and normalisation weights may be spared the decay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from annotated_types import Ge

from robust0.lazy import torch
from robust0.registry import Count, Positive, Registry, Share, setting

if TYPE_CHECKING:
    from torch import nn

NonNegative = Annotated[float, Ge(0)]


class Optimiser(Protocol):
    """Settings from which torch's optimiser is made."""

    kind: ClassVar[str]

    @property
    def lr(self) -> float:
        """The learning rate before the schedule, which is set before every update."""

    def build(self, network: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of a network's weights."""


@dataclass(frozen=True, slots=True)
class SGD:
    """Stochastic gradient descent."""

    kind: ClassVar[str] = "sgd"
    lr: Positive = setting(0.05, "learning rate before the schedule", "App. G")
    momentum: Share = setting(0.9, "momentum", "App. G")
    nesterov: bool = setting(False, "Nesterov's momentum", "[Zhong24]")
    weight_decay: NonNegative = setting(5e-4, "l2 penalty", "App. G")
    decay_all: bool = setting(True, "decay biases and normalisation weights too", "[Zhong24]")

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")

    def build(self, network: nn.Module) -> torch.optim.Optimizer:
        """Torch's SGD."""
        groups = _groups(network, self.weight_decay, decay_all=self.decay_all)
        return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov)


@dataclass(frozen=True, slots=True)
class AdamW:
    """Adam with decoupled weight decay [Loshchilov19]."""

    kind: ClassVar[str] = "adamw"
    lr: Positive = setting(1e-3, "learning rate before the schedule")
    betas: tuple[Share, Share] = setting((0.9, 0.999), "decay rates of the two moments")
    eps: Positive = setting(1e-8, "added to the root of the second moment")
    weight_decay: NonNegative = setting(0.05, "decoupled decay")
    decay_all: bool = setting(False, "decay biases and normalisation weights too")

    def build(self, network: nn.Module) -> torch.optim.Optimizer:
        """Torch's AdamW."""
        groups = _groups(network, self.weight_decay, decay_all=self.decay_all)
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps)


@dataclass(frozen=True, slots=True)
class Muon:
    """Momentum whose matrices are made orthogonal before they are followed [Jordan24].

    A convolution is a matrix with a row per filter. Biases, normalisation weights, grouped
    convolutions and the classifier follow gradients with Nesterov's momentum, at a rate of their
    own.
    """

    kind: ClassVar[str] = "muon"
    lr: Positive = setting(0.05, "learning rate before the schedule")
    momentum: Share = setting(0.9, "momentum, Nesterov's")
    weight_decay: NonNegative = setting(0.02, "decoupled decay, of matrices alone")
    rest: Positive = setting(1.0, "rate of all other weights, as a multiple of lr")
    iterations: Count = setting(5, "Newton-Schulz iterations per update", "[Jordan24]")

    def build(self, network: nn.Module) -> torch.optim.Optimizer:
        """Matrices and the rest, each in their own way."""
        from robust0.training.muon import OrthogonalMomentum

        return OrthogonalMomentum(network, self)


def _groups(network: nn.Module, decay: float, *, decay_all: bool) -> list[dict[str, Any]]:
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    if decay_all:
        return [{"params": weights, "weight_decay": decay}]
    return [
        {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": decay},
        {"params": [weight for weight in weights if weight.ndim <= 1], "weight_decay": 0.0},
    ]


OPTIMISERS: Registry[Optimiser] = Registry("optimiser", [SGD, AdamW, Muon])
