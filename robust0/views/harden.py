"""The training run as people watch it: live on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import assert_never

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

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
from robust0.views.chart import line_chart
from robust0.views.live import View, fitting_view
from robust0.wording import shell

TOLERATED = 0.02  # loss of clean accuracy in fine-tuning that needs no warning
INTERVAL = 60.0  # seconds between two lines where nobody watches live
_STYLES = {"clean": "green", "training attack": "yellow", "probe": "red"}


def train_view(*, silent: bool = False) -> AbstractContextManager[View[TrainEvent]]:
    """The view that fits where stderr goes."""
    return fitting_view(LiveTrainView, PlainTrainView, silent=silent)


class LiveTrainView:
    """Bars, losses, a chart of accuracies over epochs and the catastrophic-overfitting light."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = clock()
        self._start: TrainStarted | None = None
        self._at = 0
        self._step: StepDone | None = None
        self._epochs: list[EpochDone] = []
        self._alarm: str | None = None
        self._watching: Watching | None = None
        self._last = ""
        self._end: Text | None = None

    def show(self, event: TrainEvent) -> None:
        """Take one event."""
        match event:
            case TrainStarted():
                self._start, self._at, self._begun = event, event.step, self._clock()
            case Ticked():
                self._at = event.step
            case StepDone():
                self._step = event
            case Watching():
                self._watching = event
            case EpochDone():
                self._watching = None
                self._epochs.append(event)
            case OverfittingSeen():
                self._alarm = f"epoch {event.epoch}: {event.reason}"
            case Saved():
                self._last = f"saved {event.path}"
            case TrainFinished():
                self._last, self._end = "", conclusion(event)
            case _:
                assert_never(event)

    def __rich_console__(self, console: Console, options: object) -> Iterator[RenderableType]:
        """Draw the present state."""
        if self._start is None:
            yield Text("starting ...", style="dim")
            return
        yield Text(heading(self._start), style="bold")
        yield from (Text(note, style="dim") for note in self._start.notes)
        yield self._bars(self._start, console.width)
        if self._step is not None:
            yield Group(*(Text(line) for line in numbers(self._step)))
        if self._epochs:
            yield line_chart(
                {
                    "clean": [event.clean for event in self._epochs],
                    "training attack": [event.training_attack for event in self._epochs],
                    "probe": [event.probe for event in self._epochs],
                },
                _STYLES,
                width=min(console.width, 100),
            )
            yield Text(reserved(self._epochs[-1]))
        yield from self._light(self._start)
        if self._last:
            yield Text(self._last, style="dim")

    def last_words(self) -> Text | None:
        """Where the run is and how to go on, below the picture: paths are not broken there."""
        return self._end

    def _bars(self, start: TrainStarted, width: int) -> Table:
        step, total = self._at, start.epochs * start.steps_per_epoch
        done, inside = divmod(step, start.steps_per_epoch)
        epoch = min(done + 1, start.epochs)
        bar = max(10, min(40, width - 45))
        grid = Table.grid(padding=(0, 1))
        grid.add_row(
            "all",
            ProgressBar(total, step, width=bar),
            f"{step:,}/{total:,} steps",
            f"{clock(self._left(start, step, total))} left",
        )
        grid.add_row(
            "epoch",
            ProgressBar(start.steps_per_epoch, inside, width=bar),
            f"{epoch}/{start.epochs}",
            f"{self._step.images_per_second:,.0f} images/s" if self._step else "",
        )
        return grid

    def _left(self, start: TrainStarted, step: int, total: int) -> float | None:
        done = step - start.step
        return None if done <= 0 else (self._clock() - self._begun) / done * (total - step)

    def _light(self, start: TrainStarted) -> Iterator[Text]:
        if self._alarm:
            yield Text("● catastrophic overfitting: ", style="bold red") + Text(self._alarm)
        if self._watching is not None:
            yield Text("● ", style="cyan") + Text(checking(self._watching))
        elif not start.probe:
            yield Text("○ catastrophic overfitting is not watched for", style="dim")
        elif not self._epochs and not start.checked:
            yield Text("○ not yet checked for catastrophic overfitting", style="dim")
        elif not self._alarm:
            yield Text("● ", style="green") + Text("no sign of catastrophic overfitting")


class PlainTrainView:
    """One line per epoch and per minute, for logs."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._said = clock()
        self._stopping = False

    def show(self, event: TrainEvent) -> None:
        """Take one event."""
        match event:
            case TrainStarted():
                self._say(heading(event))
                for note in event.notes:
                    self._say(note)
                if event.step:
                    self._say(f"resumed at step {event.step}")
            case Ticked():
                pass
            case StepDone():
                self._now_and_then(lambda: f"step {event.step}: " + "; ".join(numbers(event)))
            case Watching():
                self._check(event)
            case EpochDone():
                self._said = self._clock()
                self._say(f"{when(event)}: {reserved(event)}")
            case OverfittingSeen():
                self._say(
                    f"warning: catastrophic overfitting at epoch {event.epoch}: {event.reason}"
                )
            case Saved():
                if event.kind != "snapshot":
                    self._say(f"saved {event.path}")
            case TrainFinished():
                self._say(ending(event))
                self._say(price(event))
            case _:
                assert_never(event)

    def _check(self, event: Watching) -> None:
        if event.stopping and not self._stopping:
            self._say(checking(event))
        self._stopping = event.stopping
        self._now_and_then(lambda: checking(event))

    def _now_and_then(self, text: Callable[[], str]) -> None:
        if self._clock() - self._said >= INTERVAL:
            self._said = self._clock()
            self._say(text())

    def _say(self, text: str) -> None:
        if not text:
            return
        self._console.print(Text(text), soft_wrap=True)


def heading(event: TrainStarted) -> str:
    """One line that names the run."""
    processes = f" · {event.processes} processes" if event.processes > 1 else ""
    epochs = f"{event.epochs} epochs" if event.epochs != 1 else "1 epoch"
    left = event.images - event.steps_per_epoch * event.batch
    over = f" ({left:,} left over, different ones in every epoch)" if left else ""
    return (
        f"robust0 harden · {event.title} · {event.images:,} images · "
        f"{epochs} of {event.steps_per_epoch} x {event.batch}{over}{processes}"
    )


def numbers(event: StepDone) -> list[str]:
    """Losses and rates of the last steps."""
    parts = " + ".join(f"{name} {value:.3f}" for name, value in event.parts.items())
    seen = [
        f"{name} {value:.1%}"
        for name, value in (("clean", event.clean_accuracy), ("attacked", event.attack_accuracy))
        if value is not None
    ]
    return [
        f"loss {event.loss:.3f} = {parts}",
        f"training batches: {', '.join(seen)}; lr {event.learning_rate:.2g}, gradient norm "
        f"{event.gradient_norm:.2f}, {event.memory_bytes / 2**30:.1f} GiB",
    ]


def when(event: EpochDone) -> str:
    """The time of a reading."""
    return f"epoch {event.epoch}" if event.epoch else "before the first step"


def checking(event: Watching) -> str:
    """What the overfitting watch is doing."""
    end = "; then the run stops (Ctrl-C again: at once)" if event.stopping else ""
    return (
        f"checking for catastrophic overfitting: {event.attack}, "
        f"{event.done} of {event.images} reserved images{end}"
    )


def reserved(event: EpochDone) -> str:
    """The accuracies on reserved images."""
    attacked = (
        "" if event.training_attack is None else f", training attack {event.training_attack:.1%}"
    )
    return (
        f"{event.images} reserved images: clean {event.clean:.1%}{attacked}, "
        f"probe {event.probe:.1%} ({event.probe_name})"
    )


def conclusion(event: TrainFinished) -> Text:
    """The end of a run in colour."""
    text = Text(ending(event), style="dim" if event.interrupted is None else "bold")
    if cost := price(event):
        text = Text("\n").join((text, Text(cost, style="bold yellow")))
    return text


def ending(event: TrainFinished) -> str:
    """How the run ended."""
    if event.interrupted is not None:
        again = shell("harden", "--resume", event.path)
        return f"interrupted at step {event.step}; go on with {again}"
    done = f"finished after {event.step} steps in {event.path}"
    change = event.fine_tuned
    if change is None:
        return done
    return (
        f"{done}\n{change.images} reserved images, before -> after: clean "
        f"{change.clean_before:.1%} -> {change.clean:.1%}, probe {change.probe_before:.1%} -> "
        f"{change.probe:.1%}"
    )


def price(event: TrainFinished) -> str:
    """A warning where fine-tuning cost clean accuracy."""
    change = event.fine_tuned
    if change is None or event.interrupted or change.clean_before - change.clean <= TOLERATED:
        return ""
    place = f"epoch {change.best_epoch}" if change.best_epoch else "before the first step"
    return (
        f"warning: clean accuracy fell by {100 * (change.clean_before - change.clean):.1f} points; "
        f"best.safetensors is from {place}; a lower --set training.schedule.peak costs less"
    )


def clock(seconds: float | None) -> str:
    """Seconds as h:mm:ss."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
