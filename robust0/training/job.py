"""Everything a training run needs, as one frozen object; built by robust0.commands."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from robust0.attacks.base import Attack
from robust0.data.augment import Augmentation
from robust0.data.imageset import ImageSet
from robust0.errors import RunError
from robust0.threats import Threat
from robust0.training.averaging import Averaging
from robust0.training.methods.base import Method
from robust0.training.optimizers import Optimiser
from robust0.training.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Watch:
    """The catastrophic-overfitting watch: attacks independent of training on reserved images."""

    attacks: tuple[tuple[str, Attack[Any]], ...]  # (configured name, attack), a cascade
    threat: Threat  # the evaluation budget
    images: int  # 0 turns the watch off
    every: int  # epochs
    collapse: float  # probe accuracy below which a run counts as collapsed
    stop: bool  # end training when the alarm is raised


@dataclass(frozen=True, slots=True)
class TrainJob:
    """A training run; ``identity`` is what a resumed run must have in common with the first."""

    title: str
    folder: Path
    network: nn.Module  # normalisation inside, on the device
    fine_tunes: bool  # the weights are trained already
    data: ImageSet  # training images, on the device
    rows: Tensor  # positions trained on
    reserved: Tensor  # positions never trained on
    method: Method
    averaging: Averaging
    optim: Optimiser
    schedule: Schedule
    watch: Watch
    epochs: int
    batch_size: int  # images per micro-batch
    accumulate: int
    augment: Augmentation
    workers: int | None  # processes that decode image files; None: one per core
    precision: Literal["fp32", "bf16", "fp16"]
    channels_last: bool
    compile: bool
    clip_norm: float | None
    snapshot_minutes: float
    seed: int
    device: torch.device
    identity: dict[str, Any]
    export: Callable[[Path, nn.Module, dict[str, float]], None]  # writes a checkpoint with metrics
    notes: tuple[str, ...]
    keep_epochs: bool = False  # a checkpoint after every epoch

    def whole(self) -> nn.Module:
        """What classifies images: the network, or the classifier around it."""
        shape, classes = self.data.image_shape, len(self.data.class_names)
        return self.method.classifier(self.network, shape, classes) or self.network


@dataclass(frozen=True, slots=True)
class Timetable:
    """How a run is divided."""

    micros: int  # micro-batches per step, over all processes
    micro_size: int
    batch: int  # images per step
    steps: int  # per epoch; the images left over wait for another epoch
    epochs: int

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        return self.steps * self.epochs


def timetable(job: TrainJob, processes: int) -> Timetable:
    """The steps of a job; refuses fewer images than micro-batches."""
    micros = job.accumulate * processes
    size = min(job.batch_size, len(job.rows) // micros)
    if size == 0:
        raise RunError(
            f"{len(job.rows)} training images are fewer than {micros} micro-batches",
            "use fewer processes or fewer accumulation steps",
        )
    batch = size * micros
    # A method that moves the weights m times per batch sees each image m times less often.
    epochs = -(-job.epochs // job.method.updates)
    return Timetable(micros, size, batch, len(job.rows) // batch, epochs)
