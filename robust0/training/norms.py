"""Batch-norm statistics that mean the same for accumulation steps and for processes.

Every micro-batch of an optimiser step starts from the statistics of the step's beginning; at its
end they are averaged over micro-batches. With one micro-batch this is ordinary batch norm.
"""

from typing import cast

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from robust0.distributed import World


class NormStatistics:
    """Collects running means and variances over the micro-batches of one step."""

    def __init__(self, network: nn.Module, world: World, accumulate: int) -> None:
        norms = [
            m for m in network.modules() if isinstance(m, _BatchNorm) and m.track_running_stats
        ]
        self._live = [
            cast("Tensor", tensor)
            for norm in norms
            for tensor in (norm.running_mean, norm.running_var, norm.num_batches_tracked)
        ]
        self._world = world
        self._count = accumulate
        self._active = bool(self._live) and accumulate * world.size > 1
        self._before: list[Tensor] = []
        self._sums: list[Tensor] = []

    def begin(self) -> None:
        """Remember where this step starts."""
        if self._active:
            self._before = [tensor.clone() for tensor in self._live]
            self._sums = []

    def collect(self) -> None:
        """After a micro-batch: add its statistics and go back to the start of the step."""
        if not self._active:
            return
        if self._sums:
            for total, tensor in zip(self._sums, self._live, strict=True):
                total.add_(tensor)
        else:
            self._sums = [tensor.clone() for tensor in self._live]
        self._set(self._before)

    def end(self) -> None:
        """The mean over all micro-batches of all processes becomes the new statistics."""
        if self._active:
            means = [total.double() / self._count for total in self._sums]
            self._world.average_(means)
            self._set(means)

    def _set(self, values: list[Tensor]) -> None:
        for tensor, value in zip(self._live, values, strict=True):
            tensor.copy_(value)
