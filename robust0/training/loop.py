"""The training loop: plain steps, exact resumption, distributed without changing the arithmetic."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from robust0.data.batches import Batch, train_batches
from robust0.distributed import World, parallel
from robust0.errors import RunError
from robust0.events import (
    EpochDone,
    OverfittingSeen,
    Saved,
    StepDone,
    Ticked,
    TrainEvent,
    TrainFinished,
    TrainStarted,
)
from robust0.interrupt import Interrupt
from robust0.rng import Stream, seeded
from robust0.runs.folder import append_line, keep_lines
from robust0.training import snapshot as snapshots
from robust0.training import watch
from robust0.training.guards import HealthCheck, batch_that_fits, gradient_norm, out_of_memory
from robust0.training.job import TrainJob
from robust0.training.meter import Meter
from robust0.training.method import Micro, Moment, StepResult
from robust0.training.norms import NormStatistics

LOG_EVERY = 20  # steps between reports
_DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def run(job: TrainJob, world: World, *, resume: bool) -> Iterator[TrainEvent]:
    """Train to the end, or to the first signal; the run directory always holds a way to go on."""
    with Interrupt() as interrupt:
        yield from _Run(job, world, interrupt).events(resume=resume)


class _Run:
    """The mutable side of a job: optimiser, position, what has been seen."""

    def __init__(self, job: TrainJob, world: World, interrupt: Interrupt) -> None:
        self.job, self.world, self.interrupt = job, world, interrupt
        self.micros = job.accumulate * world.size  # micro-batches per optimiser step
        self.micro_size = min(job.batch_size, len(job.rows) // self.micros)
        if self.micro_size == 0:
            raise RunError(
                f"{len(job.rows)} training images are fewer than {self.micros} micro-batches",
                "use fewer processes or fewer accumulation steps",
            )
        self.batch = self.micro_size * self.micros
        self.steps_per_epoch = len(job.rows) // self.batch  # the rest waits for another epoch
        self.total = self.steps_per_epoch * job.epochs
        if job.channels_last:
            job.network.to(memory_format=torch.channels_last)
        self.optimizer = job.optim.build(job.network)
        self.scaler = torch.amp.GradScaler(job.device.type, enabled=job.precision == "fp16")
        self.forward = self._wrapped()
        self.norms = NormStatistics(job.network, world, job.accumulate)
        self.meter = Meter(job.device)
        self.health = HealthCheck()
        self.step = 0
        self.batches: Iterator[tuple[Tensor, Batch]] = iter(())
        self.memory: dict[str, Any] = {"best_probe": -1.0, "overfitting": None, "reading": None}

    def _wrapped(self) -> nn.Module:
        network = self.job.network
        if self.world.size > 1:
            network = parallel(network, self.job.device)
        if self.job.compile:
            network.compile(dynamic=False)
        return network

    # -- the run ---------------------------------------------------------------------------------

    def events(self, *, resume: bool) -> Iterator[TrainEvent]:
        if resume:
            self._resume()
        job = self.job
        yield TrainStarted(
            job.title, len(job.rows), job.epochs, self.steps_per_epoch, self.step, self.batch,
            self.world.size, job.notes,
        )  # fmt: skip
        if self.memory["overfitting"]:  # seen before this process began
            yield OverfittingSeen(*self.memory["overfitting"])
        saved_at, opened = time.monotonic(), -1
        while self.step < self.total and not self._stopping():
            if opened != self.step // self.steps_per_epoch:
                opened = self._open_epoch()
            self._optimise()
            self.step += 1
            yield Ticked(self.step)
            epoch_ends = self.step % self.steps_per_epoch == 0
            if self.step % LOG_EVERY == 0 or epoch_ends:
                yield self._report()
            if epoch_ends:
                yield from self._end_of_epoch()
            if epoch_ends or time.monotonic() - saved_at > 60 * job.snapshot_minutes:
                yield from self._snapshot()
                saved_at = time.monotonic()
        yield from self._finish()

    def _stopping(self) -> bool:
        if self.job.watch.stop and self.memory["overfitting"]:
            return True
        return self.world.largest(self.interrupt.signal or 0, self.job.device) != 0

    def _finish(self) -> Iterator[TrainEvent]:
        signal = self.world.largest(self.interrupt.signal or 0, self.job.device) or None
        if self.step == self.total:
            signal = None  # it came too late to cut anything short
        if signal:
            yield from self._snapshot()
        elif self.world.leads:
            path = self.job.folder / "model.safetensors"
            self.job.export(path, self.job.network, self._metrics())
            yield Saved(str(path), "model")
        self.world.wait()
        _, reason = self.memory["overfitting"] or (0, None)
        yield TrainFinished(str(self.job.folder), self.step, reason, signal)

    # -- one optimiser step ----------------------------------------------------------------------

    def _open_epoch(self) -> int:
        """The micro-batches this process still has in this epoch, in order."""
        job, epoch = self.job, self.step // self.steps_per_epoch
        order = Stream.of("order", job.seed).permutation(len(job.rows), epoch)
        first = self.step % self.steps_per_epoch
        steps = job.rows.cpu()[order[: self.steps_per_epoch * self.batch]]
        micros = steps.view(self.steps_per_epoch, self.micros, self.micro_size)[first:]
        mine = micros[:, self.world.rank :: self.world.size].flatten()
        batches = train_batches(
            job.data, mine, self.micro_size, epoch=epoch, stream=Stream.of("augment", job.seed),
            augment=job.augment, workers=job.workers,
        )  # fmt: skip
        self.batches = zip(mine.to(job.device).split(self.micro_size), batches, strict=True)
        self.meter.reset()
        return epoch

    def _optimise(self) -> None:
        job, epoch = self.job, self.step // self.steps_per_epoch
        scale = job.schedule.scale(self.step, self.total)
        for group in self.optimizer.param_groups:
            group["lr"] = job.optim.lr * scale
        moment = Moment(job.seed, epoch, self.step, epoch / job.epochs)
        seen: list[Tensor] = []
        self.norms.begin()
        for number in range(job.accumulate):
            batch = self._next_batch()
            seen.append(batch.rows)
            self._micro(batch, moment, number)
            self.norms.collect()
        self.norms.end()
        self._share_labels(torch.cat(seen))
        self.scaler.unscale_(self.optimizer)
        norm = gradient_norm(job.network, job.clip_norm)
        self.meter.note_norm(norm, may_skip=self.scaler.is_enabled())
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def _next_batch(self) -> Micro:
        rows, batch = next(self.batches)
        images = batch.images
        if self.job.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return Micro(images, batch.labels, batch.ids, rows)

    def _micro(self, batch: Micro, moment: Moment, number: int) -> None:
        """Forward and backward of one micro-batch; gradients are averaged over all of them."""
        index = number * self.world.size + self.world.rank
        try:
            with self._unsynced(last=number == self.job.accumulate - 1):
                result = self._differentiate(batch, moment, index)
        except (RuntimeError, MemoryError) as problem:
            if not out_of_memory(problem) or self.world.size > 1:
                raise
            self.optimizer.zero_grad(set_to_none=True)
            raise batch_that_fits(
                len(batch.rows), lambda size: self._rehearse(batch, moment, size)
            ) from problem
        self.meter.note(result, len(batch.rows))

    def _unsynced(self, *, last: bool) -> AbstractContextManager[None]:
        """Processes exchange gradients once per step, in the last micro-batch's backward."""
        wrapper = self.forward
        if isinstance(wrapper, DistributedDataParallel) and not last:
            return cast("AbstractContextManager[None]", wrapper.no_sync())
        return nullcontext()

    def _differentiate(self, batch: Micro, moment: Moment, index: int) -> StepResult:
        job, dtype = self.job, _DTYPES[self.job.precision]
        with seeded("forward", job.seed, moment.step, index):
            with torch.autocast(job.device.type, dtype=dtype, enabled=dtype is not None):
                result = job.method.step(job.network, self.forward, batch, moment)
            self.scaler.scale(result.loss / job.accumulate).backward()
        return result

    def _rehearse(self, batch: Micro, moment: Moment, size: int) -> None:
        part = Micro(batch.images[:size], batch.labels[:size], batch.ids[:size], batch.rows[:size])
        try:
            self._differentiate(part, moment, 0)
        finally:
            self.optimizer.zero_grad(set_to_none=True)

    def _share_labels(self, rows: Tensor) -> None:
        """Keep the table of soft labels equal everywhere; rows are disjoint within an epoch."""
        table = self.job.method.labels.learned()
        if table is not None and self.world.size > 1:
            table[self.world.gather(rows)] = self.world.gather(table[rows])

    # -- reports and files -----------------------------------------------------------------------

    def _report(self) -> StepDone:
        rate = self.optimizer.param_groups[0]["lr"]
        event = self.meter.report(
            self.step, (self.step - 1) // self.steps_per_epoch, rate, self.world
        )
        self._write("step", asdict(event))
        self.health.look(event)
        return event

    def _end_of_epoch(self) -> Iterator[TrainEvent]:
        job, epoch = self.job, self.step // self.steps_per_epoch
        if not job.watch.images or (epoch % job.watch.every and self.step < self.total):
            return
        rows = job.reserved[: job.watch.images]
        reading = watch.read(job.network, job.data, rows, job.method.inner, job.watch, job.seed)
        classes = len(job.data.class_names)
        reason = watch.alarm(reading, self.memory["best_probe"], classes, job.watch.collapse)
        best = reading.probe > self.memory["best_probe"]
        names = " + ".join(name for name, _ in job.watch.attacks)
        event = EpochDone(
            epoch, self.step, reading.images, reading.clean, reading.training_attack,
            reading.probe, f"{names} at {job.watch.threat}", best,
        )  # fmt: skip
        self._write("epoch", asdict(event))
        yield event
        self.memory["reading"] = asdict(reading)
        alarmed = self.world.largest(int(reason is not None), job.device)
        if alarmed and not self.memory["overfitting"]:
            self.memory["overfitting"] = (epoch, str(reason))
            yield OverfittingSeen(epoch, str(reason))
        if best:
            self.memory["best_probe"] = reading.probe
            if self.world.leads:
                path = job.folder / "best.safetensors"
                job.export(path, job.network, self._metrics())
                yield Saved(str(path), "best")

    def _metrics(self) -> dict[str, float]:
        """What a checkpoint says of itself; accuracies are those on reserved images."""
        reading = self.memory["reading"] or {}
        known = {f"reserved_{name}": value for name, value in reading.items() if value is not None}
        return {
            "step": self.step,
            "epoch": self.step // self.steps_per_epoch,
            "overfitting": float(self.memory["overfitting"] is not None),
            **known,
        }

    def _write(self, kind: str, record: dict[str, Any]) -> None:
        if self.world.leads:
            append_line(self.job.folder / "metrics.jsonl", {"event": kind, **record})

    def _snapshot(self) -> Iterator[TrainEvent]:
        if self.world.leads:
            state = snapshots.Snapshot(
                self.step, self.job.network.state_dict(), self.optimizer.state_dict(),
                self.job.method.labels.learned(), self._identity(),
                self.memory | {"scaler": self.scaler.state_dict()},
            )  # fmt: skip
            yield Saved(str(snapshots.save(self.job.folder, state)), "snapshot")

    def _identity(self) -> dict[str, Any]:
        return self.job.identity | {"images per step": self.batch, "micro-batches": self.micros}

    def _resume(self) -> None:
        found = snapshots.latest(self.job.folder, self.job.device)
        if found is not None:
            snapshots.check_identity(found, self._identity())
            self.job.network.load_state_dict(found.network)
            self.optimizer.load_state_dict(found.optimizer)
            table = self.job.method.labels.learned()
            if table is not None and found.labels is not None:
                table.copy_(found.labels)
            self.memory, self.step = found.memory, found.step
            scaler = self.memory.pop("scaler")
            if self.scaler.is_enabled():
                self.scaler.load_state_dict(scaler)
        if self.world.leads:
            keep_lines(self.job.folder / "metrics.jsonl", lambda line: line["step"] <= self.step)
