"""The audit as people watch it: live on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import assert_never

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from robust0.events import (
    AttackDone,
    AuditEvent,
    AuditFinished,
    AuditPlanned,
    AuditProgress,
    AuditStarted,
    CleanDone,
    FlagRaised,
    Standing,
)
from robust0.units import counted
from robust0.views.chart import block_curve
from robust0.views.halfblocks import fitting_step, hit_pictures
from robust0.views.harden import clock
from robust0.views.live import View, fitting_view
from robust0.wording import interval, number, percent, shell, tidy

WIDE = 84  # columns from which every number has room
_LEGEND = "it alone: broken by no other attack; passes: median per image, forward and backward"
_SHORT_LEGEND = "alone: broken by no other attack"


def audit_view(
    *, plain: bool = False, silent: bool = False
) -> AbstractContextManager[View[AuditEvent]]:
    """The view that fits where stderr goes, or plain lines, or nothing."""
    return fitting_view(LiveAuditView, PlainAuditView, lines=plain, silent=silent, transient=True)


class Remaining:
    """How long it will still take, from the share of work done since this process began."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._begun, self._first = now, now(), None

    _first: float | None

    def left(self, share: float) -> float | None:
        """Seconds, or None while there is nothing to go by."""
        if self._first is None:
            self._first, self._begun = share, self._now()
        done = share - self._first
        return None if done <= 0 else (self._now() - self._begun) / done * (1 - share)


class LiveAuditView:
    """Bars, accuracies that fall as attacks go on, survivors, the latest hit, flags."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._remaining = Remaining(now)
        self._start: AuditStarted | None = None
        self._clean: CleanDone | None = None
        self._now: AuditProgress | None = None
        self._survivors: list[float] = []
        self._finished: dict[float, str] = {}  # budgets that are through
        self._flags: list[FlagRaised] = []
        self._left: float | None = None
        self._last, self._cut = "", False
        self.above = 0  # lines that something else takes

    def show(self, event: AuditEvent) -> None:
        """Take one event."""
        match event:
            case AuditPlanned():
                pass
            case AuditStarted():
                self._start = event
                if event.verdicts:
                    self._last = f"resumed: {event.verdicts:,} verdicts were already there"
            case CleanDone():
                self._clean = event
            case FlagRaised():
                self._flags.append(event)
            case AuditProgress():
                if self._now is not None and self._now.budget != event.budget:
                    self._survivors.clear()
                self._now = event
                self._survivors.append(event.survivors.share)
                self._left = self._remaining.left(event.share)
            case AttackDone():
                self._finished[event.budget] = percent(event.survivors)
            case AuditFinished():
                self._last, self._cut = ending(event), event.interrupted is not None
            case _:
                assert_never(event)

    def last_words(self) -> Text | None:
        """What must stay on the screen when the rest has gone: how to go on."""
        return Text(self._last, style="bold") if self._cut else None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw the present state; the latest hit gets the lines that are left."""
        parts = list(self._parts(console))
        yield from parts
        hit = self._now.hit if self._now is not None else None
        if hit is not None:
            lines = console.size.height - 1 - self.above - height_of(parts, console, options)
            step = fitting_step(console, hit.shape, lines)
            if step is not None:
                yield hit_pictures(hit, step)

    def _parts(self, console: Console) -> Iterator[RenderableType]:
        if self._start is None:
            yield Text("starting ...", style="dim")
            return
        yield Text(f"robust0 audit · {self._start.title}", style="bold")
        if self._now is None:
            what = "classifying clean images" if self._clean is None else "checking the model"
            yield Text(f"{what} ...", style="dim")
        else:
            yield self._overall(self._now, console.width)
            yield self._attacks(self._start, self._now, console.width)
            yield Text(_LEGEND if console.width >= WIDE else _SHORT_LEGEND, style="dim")
            yield from self._chart(self._now, console)
        for raised in self._flags:
            yield flag_line(raised)
        if self._last:
            yield Text(self._last, style="bold" if self._cut else "dim")

    def _overall(self, now: AuditProgress, width: int) -> Table:
        grid = Table.grid(padding=(0, 1))
        clean = percent(self._clean.clean) if self._clean is not None else "-"
        bar = ProgressBar(1.0, now.share, width=max(8, min(40, width - 44)))
        left = f"{clock(self._left)} left" if now.share < 1 else "done"
        grid.add_row(
            "clean", Text(clean, style="green"), " overall", bar, f"{now.share:4.0%}", left
        )
        return grid

    def _attacks(self, start: AuditStarted, now: AuditProgress, width: int) -> Table:
        wide = width >= WIDE
        table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
        table.add_column("attack", no_wrap=True, min_width=12)
        table.add_column("progress", no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
        table.add_column("met" if start.cascade else "robust", justify="right", no_wrap=True)
        if wide and not start.cascade:
            table.add_column("95 %", justify="center", no_wrap=True)
        table.add_column("broken", justify="right", no_wrap=True)
        table.add_column("it alone" if wide else "alone", justify="right", no_wrap=True)
        if wide:
            table.add_column("passes", justify="right", no_wrap=True)
        for standing in now.standings:
            cells = _cells(standing, start.cascade, bar=12 if wide else 8)
            order = (0, 1, 2, 3, 4, 5, 6, 7) if wide else (0, 1, 2, 3, 5, 6)
            kept = [cells[place] for place in order if place != 4 or not start.cascade]
            table.add_row(*kept, style=None if standing.share else "dim")
        return table

    def _chart(self, now: AuditProgress, console: Console) -> Iterator[Text]:
        """Survivors over the passes made so far, and the number they have come to."""
        high = 4 if console.size.height >= 24 else 1
        lines = block_curve(self._survivors, max(8, min(60, console.width - 14)), high)
        for place, line in enumerate(lines):
            label = "survivors  " if place == 0 else " " * 11
            yield Text(label, style="dim") + Text(line, style="cyan")
        budgets = self._start.budgets if self._start is not None else ()
        at = f" at {now.budget}" if len(budgets) > 1 else ""
        text = Text("over passes  ", style="dim")
        text.append(f"worst case so far{at} ≤ {percent(now.survivors)}", style="bold")
        before = [f"{b}: {share}" for b, share in self._finished.items() if b != now.budget]
        if before:
            text.append(f"  ({', '.join(before)})", style="dim")
        yield text


def height_of(parts: list[RenderableType], console: Console, options: ConsoleOptions) -> int:
    """The lines that these take one below the other."""
    return sum(len(console.render_lines(part, options, pad=False)) for part in parts)


def _cells(standing: Standing, cascade: bool, bar: int) -> list[RenderableType]:  # noqa: FBT001
    """All that can be said of an attack so far; the caller leaves out what has no room."""
    name = Text(standing.attack)
    if not standing.share:
        return [name, Text("waiting"), *[Text("")] * 6]
    done = standing.share >= 1
    progress = ProgressBar(1.0, standing.share, width=bar)
    share = Text("done", style="green") if done else Text(f"{standing.share:.0%}")
    if cascade or standing.robust is None:
        robust, spread = Text(f"{standing.images:,}"), Text("")
    else:
        bound = "" if done else "≤ "
        robust = Text(f"{bound}{percent(standing.robust)}", style="bold" if done else "")
        spread = Text(interval(standing.robust), style="dim")
    counts = [f"{standing.broken:,}", number(standing.only), number(standing.passes)]
    return [name, progress, share, robust, spread, *(Text(count) for count in counts)]


class PlainAuditView:
    """One line per attack and per minute, for logs."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._console, self._now = console, now
        self._said = now()
        self._remaining = Remaining(now)

    def show(self, event: AuditEvent) -> None:
        """Take one event."""
        match event:
            case AuditPlanned():
                pass
            case AuditStarted():
                self._say(f"robust0 audit · {event.title}")
                if event.verdicts:
                    self._say(f"resumed: {event.verdicts:,} verdicts were already there")
            case CleanDone():
                self._say(f"clean: {percent(event.clean)} ({interval(event.clean)})")
            case FlagRaised():
                self._console.print(flag_line(event), soft_wrap=True)
            case AuditProgress():
                left = self._remaining.left(event.share)
                if self._now() - self._said >= 60:
                    self._say(minute(event, left))
            case AttackDone():
                self._say(attack_line(event))
            case AuditFinished():
                if event.interrupted is not None:
                    self._console.print(Text(ending(event), style="bold"), soft_wrap=True)
                else:
                    self._say(ending(event))
            case _:
                assert_never(event)

    def _say(self, text: str) -> None:
        self._said = self._now()
        self._console.print(Text(text), soft_wrap=True)


def flag_line(event: FlagRaised) -> Text:
    """A flag as one line; fatal ones cannot be missed."""
    flag = event.flag
    style = "bold red" if flag.fatal else "yellow"
    return Text("! ", style=style) + Text(f"{flag.name}: ", style=style) + Text(flag.message)


def minute(event: AuditProgress, left: float | None) -> str:
    """Where the run stands."""
    running = [s for s in event.standings if 0 < s.share < 1]
    at = f", {running[-1].attack} {running[-1].share:.0%}" if running else ""
    return (
        f"{event.share:.0%} done{at}; worst case so far at {event.budget}: "
        f"at most {percent(event.survivors)}; {clock(left)} left"
    )


def attack_line(event: AttackDone) -> str:
    """What one attack achieved."""
    standing = event.standing
    own = (
        ""
        if standing.robust is None
        else f"robust {percent(standing.robust)} ({interval(standing.robust)}), "
    )
    return (
        f"{standing.attack} at {counted(event.budget, event.unit)}: {own}broke {standing.broken:,} "
        f"of {standing.images:,} ({number(standing.only)} that no other did), "
        f"median {number(standing.passes)} "
        f"passes per image, {clock(event.seconds)}; worst case so far {percent(event.survivors)}"
    )


def ending(event: AuditFinished) -> str:
    """How the run ended."""
    if event.interrupted is not None:
        return f"interrupted; go on with {shell('audit', '--resume', event.path or '')}"
    return f"finished in {tidy(event.path)}" if event.path else "finished"
