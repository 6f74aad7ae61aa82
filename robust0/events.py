"""Facts that engines yield and views draw; no torch, no rich."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes of a download so far; ``total`` is None while the server has not said."""

    label: str
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class TrainStarted:
    """What is about to be trained; ``step`` is above 0 when a run is resumed."""

    title: str
    images: int
    epochs: int
    steps_per_epoch: int
    step: int
    batch: int  # images per optimiser step
    processes: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepDone:
    """Averages since the last such event."""

    step: int
    epoch: int
    loss: float
    parts: Mapping[str, float]
    clean_accuracy: float | None
    attack_accuracy: float | None
    learning_rate: float
    gradient_norm: float
    images_per_second: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class EpochDone:
    """Accuracies on reserved training images after an epoch; the probe is an independent attack."""

    epoch: int  # 1 after the first
    step: int
    images: int
    clean: float
    training_attack: float | None
    probe: float
    probe_name: str
    best: bool


@dataclass(frozen=True, slots=True)
class OverfittingSeen:
    """The catastrophic-overfitting watch raised its alarm."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Saved:
    """A file of the run was written."""

    path: str
    kind: str  # "snapshot", "best" or "model"


@dataclass(frozen=True, slots=True)
class TrainFinished:
    """The end of a run; ``interrupted`` names the signal that ended it early."""

    path: str
    step: int
    overfitting: str | None
    interrupted: int | None


TrainEvent = TrainStarted | StepDone | EpochDone | OverfittingSeen | Saved | TrainFinished
