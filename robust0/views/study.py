"""A study as people watch it: a bar over its units on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import assert_never

from rich.console import Console, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from robust0.study_events import StudyAdvanced, StudyEvent, StudyFinished, StudyStarted
from robust0.views.live import View, fitting_view

_QUIET = 30.0  # seconds between two lines about the same unit


def study_view() -> AbstractContextManager[View[StudyEvent]]:
    """The view that fits where stderr goes."""
    return fitting_view(LiveStudyView, PlainStudyView)


class LiveStudyView:
    """One bar for all units, one for the present one."""

    def __init__(self) -> None:
        self._start: StudyStarted | None = None
        self._at: StudyAdvanced | None = None
        self._done = False

    def show(self, event: StudyEvent) -> None:
        """Take one event."""
        match event:
            case StudyStarted():
                self._start = event
            case StudyAdvanced():
                self._at = event
            case StudyFinished():
                self._done = True
            case _:
                assert_never(event)

    def __rich_console__(self, console: Console, options: object) -> Iterator[RenderableType]:
        """Draw the present state."""
        start, at = self._start, self._at
        if start is None:
            yield Text("starting ...", style="dim")
            return
        yield Text(heading(start), style="bold")
        for note in start.notes:
            yield Text(note, style="dim")
        bar = max(10, min(40, console.width - 45))
        grid = Table.grid(padding=(0, 1))
        done = start.units if self._done else at.unit if at is not None else start.ready
        grid.add_row("all", ProgressBar(max(1, start.units), done, width=bar), f"{done} units")
        if at is not None and not self._done:
            share = ProgressBar(max(1, at.total), at.done, width=bar)
            grid.add_row("now", share, Text(at.about))
        yield grid


class PlainStudyView:
    """A line per unit, and one every half minute within it."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._unit, self._said, self._units = -1, 0.0, 0

    def show(self, event: StudyEvent) -> None:
        """Take one event."""
        match event:
            case StudyStarted():
                self._units = event.units
                self._say(heading(event))
                for note in event.notes:
                    self._say(note)
                if event.ready:
                    self._say(f"{event.ready} of {event.units} units are there already")
            case StudyAdvanced():
                fresh = event.unit != self._unit
                if fresh or self._clock() - self._said >= _QUIET:
                    self._unit, self._said = event.unit, self._clock()
                    where = "" if fresh else f": {event.done} of {event.total}"
                    self._say(f"{event.unit + 1}/{self._units} {event.about}{where}")
            case StudyFinished():
                pass
            case _:
                assert_never(event)

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


def heading(event: StudyStarted) -> str:
    """One line that names the study."""
    return f"robust0 study {event.part} · {event.title}"
