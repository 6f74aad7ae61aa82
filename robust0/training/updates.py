"""One update of the weights: all micro-batches forward and backward, then the optimiser."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from robust0.distributed import World
from robust0.models.fast.memory import out_of_memory
from robust0.rng import seeded
from robust0.training.guards import batch_that_fits, gradient_norm
from robust0.training.job import TrainJob
from robust0.training.meter import StepMeter
from robust0.training.methods.base import Loss, MicroBatch, StepBatch, StepResult
from robust0.training.norms import NormStatistics

_DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class Updates:
    """What a method is handed as ``update``; counts the updates since the start of training."""

    def __init__(
        self, job: TrainJob, world: World, forward: nn.Module, meter: StepMeter, total: int,
        joined: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        self.job, self.world, self.forward, self.meter = job, world, forward, meter
        self.total, self._joined = total, joined
        self.optimizer = job.optim.build(job.network)
        self.scaler = torch.amp.GradScaler(job.device.type, enabled=job.precision == "fp16")
        self.norms = NormStatistics(job.network, world, job.accumulate)
        self.number = 0
        self.batch: StepBatch | None = None  # of the present step

    def __call__(self, loss: Loss) -> None:
        """Move the weights against a loss, averaged over all micro-batches of the step."""
        job = self.job
        scale = job.schedule.scale(self.number, self.total)
        for group in self.optimizer.param_groups:
            group["lr"] = job.optim.lr * scale
        self.norms.begin()
        for index, micro in enumerate(self.batch.micros if self.batch else ()):
            self._micro(loss, micro, index)
            self.norms.collect()
        self.norms.end()
        self.scaler.unscale_(self.optimizer)
        norm = gradient_norm(job.network, job.clip_norm)
        self.meter.note_norm(norm, may_skip=self.scaler.is_enabled())
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.number += 1
        self._joined(self.number, self.total)

    def _micro(self, loss: Loss, micro: MicroBatch, number: int) -> None:
        """Forward and backward of one micro-batch; gradients are averaged over all of them."""
        index = number * self.world.size + self.world.rank
        try:
            with self._unsynced(last=number == self.job.accumulate - 1):
                result = self._differentiate(loss, micro, index)
        except (RuntimeError, MemoryError) as problem:
            if not out_of_memory(problem) or self.world.size > 1:
                raise
            self.optimizer.zero_grad(set_to_none=True)
            raise batch_that_fits(
                len(micro.rows), lambda size: self._rehearse(loss, micro, size)
            ) from problem
        self.meter.note(result, len(micro.rows))

    def _unsynced(self, *, last: bool) -> AbstractContextManager[None]:
        """Processes exchange gradients once per update, in the last micro-batch's backward."""
        wrapper = self.forward
        if isinstance(wrapper, DistributedDataParallel) and not last:
            return cast("AbstractContextManager[None]", wrapper.no_sync())
        return nullcontext()

    def _differentiate(self, loss: Loss, micro: MicroBatch, index: int) -> StepResult:
        job, dtype = self.job, _DTYPES[self.job.precision]
        with seeded("forward", job.seed, self.number, index):
            with torch.autocast(job.device.type, dtype=dtype, enabled=dtype is not None):
                result = loss(micro)
            self.scaler.scale(result.loss / job.accumulate).backward()
        return result

    def _rehearse(self, loss: Loss, micro: MicroBatch, size: int) -> None:
        part = MicroBatch(
            micro.images[:size], micro.labels[:size], micro.ids[:size], micro.rows[:size],
            micro.places[:size],
        )  # fmt: skip
        try:
            self._differentiate(loss, part, 0)
        finally:
            self.optimizer.zero_grad(set_to_none=True)
