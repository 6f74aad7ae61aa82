"""What the overfitting watch has seen of a run: the last reading, the best one, the alarm."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from torch import nn

from robust0.distributed import World
from robust0.events import EpochDone, FineTuned, OverfittingSeen, TrainEvent
from robust0.training import watch
from robust0.training.job import TrainJob


class Vigil:
    """Reads the reserved images and remembers; ``memory`` is plain JSON, for snapshots."""

    def __init__(self, job: TrainJob, world: World) -> None:
        self._job, self._world = job, world
        self.memory: dict[str, Any] = {
            "best_score": -1.0,
            "best_epoch": 0,
            "overfitting": None,
            "reading": None,
            "before": None,  # the reading before the first step, of weights trained already
        }

    @property
    def alarm(self) -> tuple[int, str] | None:
        """Epoch and reason of the first alarm."""
        seen = self.memory["overfitting"]
        return None if seen is None else (seen[0], seen[1])

    @property
    def name(self) -> str:
        """The probe in words; empty where nothing is watched."""
        job = self._job
        names = " + ".join(name for name, _ in job.watch.attacks) or "certified"
        return f"{names} at {job.watch.threat}" if job.watch.images else ""

    def look(self, network: nn.Module, epoch: int, step: int) -> Iterator[TrainEvent]:
        """Take a reading; it says of itself whether it is the best. None is after an alarm."""
        job = self._job
        rows = job.reserved[: job.watch.images]
        reading = yield from watch.read(network, job.data, rows, job.method, job.watch, job.seed)
        classes, highest = len(job.data.class_names), self.memory["best_score"]
        reason = None
        if epoch == 0:
            self.memory["before"] = asdict(reading)
        else:
            rising = self.memory["before"] is not None and highest < job.watch.collapse
            collapse = 0.0 if rising else job.watch.collapse  # it has not stood up yet
            reason = watch.alarm(reading, highest, classes, collapse)
        alarmed = bool(self._world.largest(int(reason is not None), job.device))
        best = reading.score > highest and not alarmed and self.alarm is None
        yield EpochDone(
            epoch, step, reading.images, reading.clean, reading.training_attack, reading.probe,
            self.name, best,
        )  # fmt: skip
        self.memory["reading"] = asdict(reading)
        if alarmed and self.alarm is None:
            self.memory["overfitting"] = (epoch, str(reason))
            yield OverfittingSeen(epoch, str(reason))
        if best:
            self.memory["best_score"], self.memory["best_epoch"] = reading.score, epoch

    def change(self) -> FineTuned | None:
        """What fine-tuning did to the accuracies on reserved images."""
        before, after = self.memory["before"], self.memory["reading"]
        if before is None:
            return None
        return FineTuned(
            before["images"], before["clean"], after["clean"], before["probe"], after["probe"],
            self.memory["best_epoch"],
        )  # fmt: skip

    def metrics(self) -> dict[str, float]:
        """What a checkpoint says of itself; accuracies are those on reserved images."""
        reading = self.memory["reading"] or {}
        known = {
            f"reserved_{name}": value
            for name, value in reading.items()
            if value is not None and name != "proved"
        }
        return {"overfitting": float(self.alarm is not None), **known}
