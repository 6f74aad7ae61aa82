"""Averages of the weights over training, beside any method; the watch and the export use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from robust0.lazy import torch
from robust0.registry import Count, Fraction, Registry, Share, setting

if TYPE_CHECKING:
    from torch import Tensor, nn

Images = Callable[[int], Iterator["Tensor"]]  # batches of that many training images


class Averaging(Protocol):
    """The settings of an average: when the weights join it, and how."""

    kind: ClassVar[str]
    makes_statistics: ClassVar[bool]  # batch norm's are measured before the average is used

    @property
    def norm_images(self) -> int:
        """On how many training images statistics are measured."""

    def share(self, update: int, total: int, joined: int) -> float | None:
        """The weight of the newest weights after this update (from 1); None: not now."""


@dataclass(frozen=True, slots=True)
class NoAveraging:
    """The last weights are used as they are."""

    kind: ClassVar[str] = "none"
    makes_statistics: ClassVar[bool] = False
    norm_images: ClassVar[int] = 0

    def share(self, update: int, total: int, joined: int) -> float | None:  # noqa: ARG002
        """Never."""
        return None


@dataclass(frozen=True, slots=True)
class EMA:
    """An exponential moving average [Polyak92] of weights and of batch norm's statistics."""

    kind: ClassVar[str] = "ema"
    makes_statistics: ClassVar[bool] = False
    norm_images: ClassVar[int] = 0
    decay: Share = setting(0.999, "share of the old average kept at each update")

    def share(self, update: int, total: int, joined: int) -> float | None:  # noqa: ARG002
        """Larger in the first updates, so that the random start is forgotten."""
        return 1 - min(self.decay, (1 + joined) / (10 + joined)) if joined else 1.0


@dataclass(frozen=True, slots=True)
class SWA:
    """Stochastic weight averaging [Izmailov18]: the plain mean of weights late in training."""

    kind: ClassVar[str] = "swa"
    makes_statistics: ClassVar[bool] = True
    start: Fraction = setting(0.75, "fraction of all updates after which weights join")
    every: Count = setting(50, "updates between two that join")
    norm_images: Count = setting(
        10_000, "training images on which batch norm's statistics are measured"
    )

    def share(self, update: int, total: int, joined: int) -> float | None:
        """Every n-th update counts the same; the last one always counts."""
        if update < self.start * total or (update % self.every and update < total):
            return None
        return 1 / (joined + 1)


AVERAGINGS: Registry[Averaging] = Registry("averaging", [NoAveraging, EMA, SWA])


class WeightAverage:
    """The average of a network's weights so far; the network itself trains on."""

    def __init__(self, settings: Averaging, network: nn.Module, images: Images) -> None:
        self._settings, self._network, self._images = settings, network, images
        self._mean: dict[str, Tensor] = {}
        self._joined = 0

    def note(self, update: int, total: int) -> None:
        """After an update (counted from 1): let the weights join, if it is their turn."""
        share = self._settings.share(update, total, self._joined)
        if share is None:
            return
        for name, tensor in self._network.state_dict().items():
            if name in self._mean and tensor.is_floating_point():
                self._mean[name].lerp_(tensor, share)
            else:
                self._mean[name] = tensor.clone()
        self._joined += 1

    @contextmanager
    def applied(self) -> Iterator[nn.Module]:
        """The network with the averaged weights in it; its own come back afterwards."""
        if not self._mean:
            yield self._network
            return
        own = {name: tensor.clone() for name, tensor in self._network.state_dict().items()}
        self._network.load_state_dict(self._mean)
        try:
            if self._settings.makes_statistics:
                measure_statistics(self._network, self._images(self._settings.norm_images))
            yield self._network
        finally:
            self._network.load_state_dict(own)

    def state_dict(self) -> dict[str, Tensor]:
        """The average and how many weights are in it."""
        if not self._mean:
            return {}
        return {
            "joined": torch.tensor(self._joined),
            **{f"mean.{n}": t for n, t in self._mean.items()},
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a remembered average."""
        self._joined = int(state["joined"]) if state else 0
        self._mean = {
            name.removeprefix("mean."): tensor.clone()
            for name, tensor in state.items()
            if name != "joined"
        }


def measure_statistics(network: nn.Module, batches: Iterator[Tensor]) -> None:
    """Give batch norm the statistics of these images; nothing else is in training mode."""
    norms = [
        module
        for module in network.modules()
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.track_running_stats
    ]
    if not norms:
        return
    modes = [(module, module.training) for module in network.modules()]
    momenta = [norm.momentum for norm in norms]
    network.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
        norm.train()
    try:
        with torch.no_grad():
            for images in batches:
                network(images)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, training in modes:
            module.training = training
