"""TensorBoard scalars of a run, where tensorboard is installed."""

import importlib.util
from pathlib import Path
from typing import Any

from robust0.events import EpochDone, StepDone, TrainEvent, TrainStarted


class Scalars:
    """Writes losses and accuracies beside the other files of the run; else does nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def show(self, event: TrainEvent) -> None:
        """Take one event."""
        match event:
            case TrainStarted() if importlib.util.find_spec("tensorboard"):
                from torch.utils.tensorboard import SummaryWriter

                self._writer = SummaryWriter(str(self._folder), purge_step=event.step)
            case StepDone() if self._writer:
                self._add(event.step, {"loss": event.loss, "learning rate": event.learning_rate})
                self._add(event.step, {f"loss/{name}": v for name, v in event.parts.items()})
            case EpochDone() if self._writer:
                found = {"clean": event.clean, "probe": event.probe}
                if event.training_attack is not None:
                    found["training attack"] = event.training_attack
                self._add(event.step, {f"reserved/{name}": v for name, v in found.items()})
            case _:
                pass

    def _add(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()
