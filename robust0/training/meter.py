"""Averages between two reports, kept on the device so that steps need no host sync."""

import math
import resource
import sys
import time

import torch
from torch import Tensor

from robust0.distributed import World
from robust0.events import StepDone
from robust0.training.methods.base import StepResult


class StepMeter:
    """Sums of losses and hits since the last report."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.reset()

    def reset(self) -> None:
        """Forget everything, restart the clock."""
        self._sums: dict[str, Tensor] = {}
        self._images = 0
        self._micros = 0
        self._pending: list[Tensor] = []  # losses of the micro-batches of this update
        self._losses: list[Tensor] = []  # of the updates
        self._since = time.perf_counter()

    def note(self, result: StepResult, images: int) -> None:
        """Add a micro-batch."""
        self._images += images
        self._micros += 1
        self._add("loss", result.loss.detach())
        self._pending.append(result.loss.detach().float())
        for name, part in result.parts.items():
            self._add(f"part.{name}", part)
        for name, hits in (("clean", result.clean_hits), ("attack", result.adversarial_hits)):
            if hits is not None:
                self._add(name, hits)

    def note_norm(self, norm: Tensor, *, may_skip: bool = False) -> None:
        """Add an optimiser step's gradient norm.

        ``may_skip``: a loss scaler skips steps whose gradient overflowed, so they do not count.
        """
        norm = norm.detach()
        self._losses.append(torch.stack(self._pending).mean())
        self._pending = []
        counts = norm.isfinite() if may_skip else torch.ones_like(norm, dtype=torch.bool)
        self._add("norm", norm.where(counts, 0.0))
        self._add("norms", counts)

    def report(self, step: int, epoch: int, learning_rate: float, world: World) -> StepDone:
        """The averages over all processes; the meter starts anew."""
        names = list(self._sums)
        sums = torch.stack([self._sums[name].float() for name in names])
        losses = torch.stack(self._losses)
        world.average_([sums, losses])  # in place; every process has the same names
        values = dict(zip(names, sums.tolist(), strict=True))
        seconds = time.perf_counter() - self._since
        event = StepDone(
            step=step,
            epoch=epoch,
            loss=values["loss"] / self._micros,
            losses=tuple(losses.tolist()),
            parts={
                name.removeprefix("part."): value / self._micros
                for name, value in values.items()
                if name.startswith("part.")
            },
            clean_accuracy=self._rate(values.get("clean")),
            attack_accuracy=self._rate(values.get("attack")),
            learning_rate=learning_rate,
            gradient_norm=values["norm"] / values["norms"] if values["norms"] else math.nan,
            images_per_second=self._images * world.size / seconds,
            memory_bytes=self._memory(),
        )
        self.reset()
        return event

    def _add(self, name: str, value: Tensor) -> None:
        held = self._sums.get(name)
        self._sums[name] = value.float() if held is None else held + value

    def _rate(self, hits: float | None) -> float | None:
        return None if hits is None else hits / self._images

    def _memory(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
