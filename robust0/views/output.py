"""One voice for every command: data on stdout, everything else on stderr, as asked for."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text

if TYPE_CHECKING:  # events and bars are dear to import, and help needs neither
    from rich.progress import TaskID

    from robust0.events import Transfer

# C0 and C1 but tab and newline, marks that reverse a line, and halves of surrogate pairs.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

TEXT_WIDTH = 140  # columns of text that goes to a file


class OutputFormat(StrEnum):
    """How a command writes its data."""

    AUTO = "auto"
    RICH = "rich"
    PLAIN = "plain"
    TSV = "tsv"
    JSON = "json"

    def resolved(self) -> "OutputFormat":
        """``auto`` is rich on a terminal and plain elsewhere."""
        if self is not OutputFormat.AUTO:
            return self
        return OutputFormat.RICH if out().is_terminal else OutputFormat.PLAIN


class ReportFormat(StrEnum):
    """How a report or a gate's decision is written."""

    AUTO = "auto"
    RICH = "rich"
    PLAIN = "plain"
    TSV = "tsv"
    JSON = "json"
    MARKDOWN = "markdown"
    JUNIT = "junit"

    @property
    def is_data(self) -> bool:
        """Whether a parser reads stdout, so that nothing else may be written there."""
        return self not in {ReportFormat.AUTO, ReportFormat.RICH, ReportFormat.PLAIN}

    def resolved(self) -> "ReportFormat":
        """``auto`` is rich on a terminal and plain elsewhere."""
        if self is not ReportFormat.AUTO:
            return self
        return ReportFormat.RICH if out().is_terminal else ReportFormat.PLAIN


def visible(text: str) -> str:
    """Text with every control character, but newlines and tabs, shown as a replacement mark."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


class Verbosity:
    """How much is said beside the data: set once, when the command line is read."""

    quiet: ClassVar[bool] = False
    verbose: ClassVar[bool] = False


class _SafeConsole(Console):
    """Names of files, keys and classes reach terminals: their escape sequences do not."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for part in super().render(renderable, options):
            yield part if part.control else Segment(visible(part.text), part.style)


def out() -> Console:
    """The console for data."""
    return _SafeConsole(file=sys.stdout, highlight=False)


def text_out() -> Console:
    """The console for data that go to a file or another program: no colour, wide enough."""
    width = int(os.environ.get("COLUMNS", "0")) or TEXT_WIDTH
    return _SafeConsole(file=sys.stdout, highlight=False, color_system=None, width=width)


def err() -> Console:
    """The console for progress, notes and errors."""
    return _SafeConsole(file=sys.stderr, highlight=False)


def note(text: str, style: str = "", *, prose: bool = False) -> None:
    """Say something beside the data; not with ``--quiet``.

    Args:
        text: what.
        style: of the text.
        prose: a terminal may break it between words; paths and commands must stay whole.
    """
    if not Verbosity.quiet:
        console = err()
        console.print(Text(text, style=style), soft_wrap=not (prose and console.is_terminal))


def loading(command: str) -> None:
    """Say at once that a command has begun: importing PyTorch takes seconds, and nothing shows."""
    leads = os.environ.get("RANK", "0") == "0"  # torchrun starts several processes
    if leads and "torch" not in sys.modules:
        note(f"robust0 {command}: loading PyTorch ...")


def warn(text: str) -> None:
    """Say something the user should not miss."""
    err().print(Text("warning: ", style="bold yellow") + Text(text), soft_wrap=True)


def error(message: str, hint: str) -> None:
    """The two lines of a refusal; each stays one line whatever the terminal's width."""
    err().print(Text("error: ", style="bold red") + Text(_line(message)), soft_wrap=True)
    if hint:
        err().print(Text("hint: ", style="bold cyan") + Text(_line(hint)), soft_wrap=True)


@contextmanager
def transfer_bars() -> Iterator["Callable[[Transfer], None]"]:
    """Bars for downloads on a terminal; elsewhere one line when a transfer starts and ends."""
    console = err()
    if not console.is_terminal:
        yield _plain_transfers()
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
    tasks: dict[str, TaskID] = {}
    with bar:

        def show(event: "Transfer") -> None:
            if event.label not in tasks:
                tasks[event.label] = bar.add_task(escape(event.label), total=event.total)
            bar.update(tasks[event.label], completed=event.done, total=event.total)

        yield show


def _plain_transfers() -> "Callable[[Transfer], None]":
    started: set[str] = set()
    finished: set[str] = set()

    def show(event: "Transfer") -> None:
        if event.label not in started:
            started.add(event.label)
            note(f"fetching {event.label}")
        if event.done == event.total and event.label not in finished:
            finished.add(event.label)
            note(f"fetched {event.label}: {event.done:,} bytes")

    return show


def _line(text: str) -> str:
    return " ".join(text.split())
