"""Facts that engines yield and views draw; no torch, no rich."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robust0.records import Accuracy, Amount, Flag, Report, Unit


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
    probe: str = ""  # what watches for catastrophic overfitting; empty: nothing does
    checked: bool = False  # it had a look before the run was resumed


@dataclass(frozen=True, slots=True)
class TrainPlanned:
    """What a run will do and about how long it will take, from a few steps on a copy."""

    title: str
    device: str
    images: int
    epochs: int
    steps_per_epoch: int
    batch: int  # images per optimiser step
    processes: int
    training_seconds: float  # 0: not known
    watching_seconds: float  # of the overfitting watch
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ticked:
    """An optimiser step is over: enough for a progress bar, costs nothing."""

    step: int


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
    losses: tuple[float, ...] = ()  # of every update since the last such event


@dataclass(frozen=True, slots=True)
class Watching:
    """The overfitting watch at work: how many reserved images an attack of it has met."""

    attack: str
    done: int
    images: int
    stopping: bool = False  # Ctrl-C was pressed: the run ends after this check


@dataclass(frozen=True, slots=True)
class EpochDone:
    """Accuracies on reserved training images after an epoch.

    The probe is attacks independent of training: its number is the images that none of them breaks.
    """

    epoch: int  # 1 after the first, 0 before any step
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
    kind: str  # "snapshot", "best", "epoch" or "model"


@dataclass(frozen=True, slots=True)
class FineTuned:
    """Accuracies on reserved images before the first and after the last step."""

    images: int
    clean_before: float
    clean: float
    probe_before: float
    probe: float
    best_epoch: int  # of best.safetensors; 0: before the first step


@dataclass(frozen=True, slots=True)
class TrainFinished:
    """The end of a run; ``interrupted`` names the signal that ended it early."""

    path: str
    step: int
    overfitting: str | None
    interrupted: int | None
    fine_tuned: FineTuned | None = None


TrainEvent = (
    TrainStarted
    | Ticked
    | StepDone
    | Watching
    | EpochDone
    | OverfittingSeen
    | Saved
    | TrainFinished
)


@dataclass(frozen=True, slots=True)
class AttackCost:
    """One attack of a planned audit: the most passes an image can cost, and the seconds of all."""

    attack: str
    budget: "Amount"
    passes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class AuditPlanned:
    """What is about to run; ``costs`` hold if every image is right and withstands everything."""

    title: str
    about: tuple[tuple[str, str], ...]  # (name, value)
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    costs: tuple[AttackCost, ...]
    seconds: float
    forwards_per_second: float
    gradients_per_second: float
    processes: int


@dataclass(frozen=True, slots=True)
class AuditStarted:
    """The run begins, or goes on where an earlier one was cut off."""

    title: str
    images: int
    unit: "Unit"
    budgets: "tuple[Amount, ...]"
    attacks: tuple[str, ...]
    cascade: bool
    verdicts: int  # already there
    path: str | None


@dataclass(frozen=True, slots=True)
class CleanDone:
    """Clean accuracy is known."""

    clean: "Accuracy"


@dataclass(frozen=True, slots=True)
class FlagRaised:
    """A check found a reason to doubt the evaluation."""

    flag: "Flag"


@dataclass(frozen=True, slots=True)
class Standing:
    """One attack at one budget so far; its accuracy is an upper bound until it is done."""

    attack: str
    images: int  # it attacks
    finished: int
    broken: int
    only: int | None  # broken by no other attack so far; no number in a cascade
    robust: "Accuracy | None"  # null in a cascade
    passes: float | None  # median over finished images
    share: float  # of its work, 0 to 1


@dataclass(frozen=True, slots=True)
class HitFound:
    """An image as an attack broke it, ready to be drawn; pixels are bytes (C, H, W)."""

    attack: str
    image: int
    label: str
    prediction: str
    changed: str  # such as "12 pixels"
    shape: tuple[int, int, int]
    clean: bytes
    adversarial: bytes


@dataclass(frozen=True, slots=True)
class AuditProgress:
    """Where the run stands: all attacks at the present budget."""

    budget: "Amount"
    share: float  # of all work, 0 to 1
    survivors: "Accuracy"  # images that no attack has broken at this budget
    standings: tuple[Standing, ...]
    hit: HitFound | None = None  # the latest


@dataclass(frozen=True, slots=True)
class AttackDone:
    """An attack has met all its images at a budget."""

    budget: "Amount"
    unit: "Unit"
    standing: Standing
    survivors: "Accuracy"
    seconds: float


@dataclass(frozen=True, slots=True)
class AuditFinished:
    """The end: a report, or the signal that cut the run short."""

    report: "Report | None"
    path: str | None
    interrupted: int | None


AuditEvent = (
    AuditPlanned
    | AuditStarted
    | CleanDone
    | FlagRaised
    | AuditProgress
    | AttackDone
    | AuditFinished
)
