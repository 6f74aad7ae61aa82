"""The training loop: plain steps, exact resumption, distributed without changing the arithmetic."""

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from robust0.data.batches import Batch, eval_batches, train_batches
from robust0.distributed import World, parallel, together
from robust0.errors import TrainingError
from robust0.events import (
    EpochDone,
    OverfittingSeen,
    Saved,
    StepDone,
    Ticked,
    TrainEvent,
    TrainFinished,
    TrainStarted,
    Watching,
)
from robust0.interrupt import Interrupt
from robust0.models.conduct import answerable
from robust0.rng import Stream
from robust0.runs.folder import append_line, keep_lines, writing
from robust0.training import snapshot as snapshots
from robust0.training.averaging import WeightAverage
from robust0.training.guards import HealthCheck
from robust0.training.job import TrainJob, timetable
from robust0.training.meter import StepMeter
from robust0.training.methods.base import MicroBatch, Moment, StepBatch
from robust0.training.updates import Updates
from robust0.training.vigil import Vigil

LOG_EVERY = 20  # steps between reports


def run_training(job: TrainJob, world: World, *, resume: bool) -> Iterator[TrainEvent]:
    """Train to the end, or to the first signal; the run directory always holds a way to go on."""
    with Interrupt() as interrupt, together(world.size):
        yield from _Run(job, world, interrupt).events(resume=resume)


def try_steps(job: TrainJob) -> Iterator[float]:
    """Seconds of one real step after the other, for an epoch; network and method learn, no more."""
    run = _Run(job, World(), Interrupt())
    run.open_epoch()
    while run.step < run.steps_per_epoch:
        begun = time.perf_counter()
        run.train()
        if job.device.type == "cuda":
            torch.cuda.synchronize(job.device)
        run.step += 1
        yield time.perf_counter() - begun


class _Run:
    """The mutable side of a job: optimiser, position, what has been seen."""

    def __init__(self, job: TrainJob, world: World, interrupt: Interrupt) -> None:
        self.job, self.world, self.interrupt = job, world, interrupt
        times = timetable(job, world.size)
        self.micros, self.micro_size, self.batch = times.micros, times.micro_size, times.batch
        self.steps_per_epoch, self.epochs, self.total = times.steps, times.epochs, times.total
        if job.channels_last:
            job.network.to(memory_format=torch.channels_last)
        self.forward = self._wrapped()
        self.meter = StepMeter(job.device)
        self.average = WeightAverage(job.averaging, job.network, self._some_images)
        self.updates = Updates(
            job, world, self.forward, self.meter, self.total * job.method.updates,
            self.average.note,
        )  # fmt: skip
        self.health = HealthCheck()
        self.step = 0
        self.batches: Iterator[tuple[Tensor, Batch]] = iter(())
        self.vigil = Vigil(job, world)

    def _wrapped(self) -> nn.Module:
        network = self.job.network
        if self.world.size > 1:
            network = parallel(network, self.job.device)
        if self.job.compile:
            from robust0.models.fast.compiling import hush

            hush()
            network.compile(dynamic=False)
        return network

    # -- the run ---------------------------------------------------------------------------------

    def events(self, *, resume: bool) -> Iterator[TrainEvent]:
        if resume:
            self._resume()
        job = self.job
        yield TrainStarted(
            job.title, len(job.rows), self.epochs, self.steps_per_epoch, self.step, self.batch,
            self.world.size, job.notes, self.vigil.name, self.vigil.memory["reading"] is not None,
        )  # fmt: skip
        if self.vigil.alarm:  # seen before this process began
            yield OverfittingSeen(*self.vigil.alarm)
        if job.fine_tunes and self.step == 0 and self.vigil.memory["before"] is None:
            yield from self._look()
        saved_at, opened = time.monotonic(), -1
        while self.step < self.total and not self._stopping():
            if opened != self.step // self.steps_per_epoch:
                opened = self.open_epoch()
            self.train()
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
        if self.job.watch.stop and self.vigil.alarm:
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
            with self.average.applied() as network:
                self.job.export(path, network, self._metrics())
            yield Saved(str(path), "model")
        self.world.wait()
        _, reason = self.vigil.alarm or (0, None)
        yield TrainFinished(str(self.job.folder), self.step, reason, signal, self.vigil.change())

    # -- one step ----------------------------------------------------------------------------------

    def open_epoch(self) -> int:
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

    def train(self) -> None:
        """One step on the next batch."""
        job, epoch = self.job, self.step // self.steps_per_epoch
        moment = Moment(job.seed, epoch, self.step, epoch / self.epochs)
        micros = tuple(self._next_batch(number) for number in range(job.accumulate))
        batch = StepBatch(job.network, self.forward, micros, self.batch, moment)
        self.updates.batch = batch
        with answerable("in training"), together(self.world.size):
            job.method.train(batch, self.updates)
        if self.updates.number != (self.step + 1) * job.method.updates:
            raise TrainingError(
                f"the method says that it moves the weights {job.method.updates} times per batch, "
                f"and did so {self.updates.number - self.step * job.method.updates} times",
                "its `updates` must be the number of its calls of update",
            )
        self._share(batch)

    def _next_batch(self, number: int) -> MicroBatch:
        rows, batch = next(self.batches)
        images = batch.images
        if self.job.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        first = (number * self.world.size + self.world.rank) * self.micro_size
        places = torch.arange(first, first + len(rows), device=rows.device)
        return MicroBatch(images, batch.labels, batch.ids, rows, places)

    def _share(self, batch: StepBatch) -> None:
        """Keep what the method remembers equal everywhere; processes change different rows."""
        if self.world.size > 1:
            state = self.job.method.state_dict()
            for name, rows in self.job.method.touched(batch).items():
                state[name][self.world.gather(rows)] = self.world.gather(state[name][rows])

    def _some_images(self, count: int) -> Iterator[Tensor]:
        """Whole batches of about this many training images, the same in every process."""
        job, size = self.job, self.micro_size
        order = Stream.of("statistics").permutation(len(job.rows))
        rows = job.rows.cpu()[order[: max(1, min(count, len(order)) // size) * size]]
        batches = eval_batches(job.data, size, rows, workers=job.workers)
        stream = Stream.of("statistics", "parts")
        return (job.method.shown(batch.images, batch.ids, stream) for batch in batches)

    # -- reports and files -----------------------------------------------------------------------

    def _report(self) -> StepDone:
        rate = self.updates.optimizer.param_groups[0]["lr"]
        event = self.meter.report(
            self.step, (self.step - 1) // self.steps_per_epoch, rate, self.world
        )
        self._write("step", asdict(event))
        self.health.look(event)
        return event

    def _end_of_epoch(self) -> Iterator[TrainEvent]:
        epoch = self.step // self.steps_per_epoch
        if epoch % self.job.watch.every == 0 or self.step == self.total:
            yield from self._look()
        if self.job.keep_epochs and self.world.leads:
            path = self.job.folder / f"epoch-{epoch:04}.safetensors"
            with self.average.applied() as network:
                self.job.export(path, network, self._metrics())
            yield Saved(str(path), "epoch")

    def _look(self) -> Iterator[TrainEvent]:
        """A reading of the reserved images; the best network so far is kept."""
        job, epoch = self.job, self.step // self.steps_per_epoch
        if not job.watch.images:
            return
        with self.average.applied() as network:
            best = False
            for event in self.vigil.look(network, epoch, self.step):
                if isinstance(event, EpochDone):
                    self._write("epoch", asdict(event))
                    best = event.best
                if isinstance(event, OverfittingSeen):
                    self._write("overfitting", {"step": self.step, **asdict(event)})
                if isinstance(event, Watching) and self.interrupt.signal:
                    event = replace(event, stopping=True)
                yield event
            if best and self.world.leads:
                path = job.folder / "best.safetensors"
                job.export(path, network, self._metrics())
                yield Saved(str(path), "best")

    def _metrics(self) -> dict[str, float]:
        epoch = self.step // self.steps_per_epoch
        return {"step": self.step, "epoch": epoch, **self.vigil.metrics()}

    def _write(self, kind: str, record: dict[str, Any]) -> None:
        if self.world.leads:
            with writing(self.job.folder, "harden"):
                append_line(self.job.folder / "metrics.jsonl", {"event": kind, **record})

    def _snapshot(self) -> Iterator[TrainEvent]:
        if self.world.leads:
            state = snapshots.Snapshot(
                self.step, self.job.network.state_dict(), self.updates.optimizer.state_dict(),
                self.job.method.state_dict(), self.average.state_dict(), self._identity(),
                self.vigil.memory | {"scaler": self.updates.scaler.state_dict()},
            )  # fmt: skip
            yield Saved(str(snapshots.save(self.job.folder, state)), "snapshot")

    def _identity(self) -> dict[str, Any]:
        return self.job.identity | {"images per step": self.batch, "micro-batches": self.micros}

    def _resume(self) -> None:
        found = snapshots.latest(self.job.folder, self.job.device)
        if found is not None:
            snapshots.check_same_training(found, self._identity())
            self.job.network.load_state_dict(found.network)
            self.updates.optimizer.load_state_dict(found.optimizer)
            self.job.method.load_state_dict(found.method)
            self.average.load_state_dict(found.averaging)
            self.vigil.memory |= found.memory
            self.step = found.step
            self.updates.number = self.step * self.job.method.updates
            scaler = self.vigil.memory.pop("scaler")
            if self.updates.scaler.is_enabled():
                self.updates.scaler.load_state_dict(scaler)
        if self.world.leads:
            last = -1 if found is None else self.step
            keep_lines(self.job.folder / "metrics.jsonl", lambda line: line["step"] <= last)
