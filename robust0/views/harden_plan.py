"""A training run before it starts: what will be trained, on what, and about how long it takes."""

from rich.table import Table
from rich.text import Text

from robust0.events import TrainPlanned
from robust0.views.audit_plan import duration
from robust0.views.output import note, out, warn

LONG = 4 * 3600.0  # seconds on a CPU from which a smaller recipe is named


def show_training_plan(event: TrainPlanned, *, runs: int = 1, as_data: bool = False) -> None:
    """The cost in a line on stderr, or the whole plan on stdout, which a dry run is for."""
    if as_data:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in (
            ("training", event.title),
            ("steps", f"{event.epochs} x {event.steps_per_epoch} of {event.batch} images"),
            ("cost", cost(event, runs)),
            *(("note", text) for text in event.notes),
        ):
            grid.add_row(name, Text(value))
        out().print(grid)
    else:
        note(f"this takes {cost(event, runs)}", prose=True)
    seconds = runs * (event.training_seconds + event.watching_seconds)
    if event.device == "cpu" and seconds > LONG:
        warn(
            "that is long for a CPU; robust0 harden --recipe quick trains a thin network for five "
            "epochs, --epochs and --train-images shorten this one"
        )


def cost(event: TrainPlanned, runs: int = 1) -> str:
    """About how long, and where."""
    if event.training_seconds == 0.0:
        return "a time that could not be measured: the network cannot be copied"
    place = "CPU" if event.device == "cpu" else event.device.upper()
    shares = f" on {event.processes} processes" if event.processes > 1 else ""
    whole = duration(runs * (event.training_seconds + event.watching_seconds))
    watch, each = duration(runs * event.watching_seconds), f" for {runs} runs" if runs > 1 else ""
    return f"about {whole} on this {place}{shares}{each}, {watch} of it for the overfitting watch"
