"""A certificate as people watch it: live on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from robust0.certify_events import (
    CertifyEvent,
    CertifyFinished,
    CertifyProgress,
    CertifyStarted,
    TrialProgress,
)
from robust0.events import AuditEvent
from robust0.views.audit import LiveAuditView, PlainAuditView, Remaining, height_of
from robust0.views.harden import clock
from robust0.views.live import View, fitting_view
from robust0.wording import interval, percent, pixels, shell, tidy

Shown = CertifyEvent | AuditEvent


def certify_view(
    *, plain: bool = False, silent: bool = False
) -> AbstractContextManager[View[Shown]]:
    """The view that fits where stderr goes, or plain lines, or nothing."""
    return fitting_view(
        LiveCertifyView, PlainCertifyView, lines=plain, silent=silent, transient=True
    )


class LiveCertifyView:
    """Certified accuracies as images come in, then the trials, then the attacks of the bracket."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._remaining = Remaining(now)
        self._start: CertifyStarted | None = None
        self._now: CertifyProgress | None = None
        self._trial: TrialProgress | None = None
        self._audit: LiveAuditView | None = None
        self._left: float | None = None
        self._last, self._cut = "", False

    def show(self, event: Shown) -> None:
        """Take one event."""
        match event:
            case CertifyStarted():
                self._start = event
                if event.proofs:
                    self._last = f"resumed: {event.proofs:,} proofs were already there"
            case CertifyProgress():
                self._now = event
                self._left = self._remaining.left(event.done / max(event.images, 1))
            case TrialProgress():
                self._trial = event
            case CertifyFinished():
                self._last, self._cut = ending(event), event.interrupted is not None
            case _:
                self._audit = self._audit or LiveAuditView()
                self._audit.show(event)

    def last_words(self) -> Text | None:
        """What must stay on the screen when the rest has gone: how to go on."""
        return Text(self._last, style="bold") if self._cut else None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw the present state."""
        parts = list(self._parts(console))
        yield from parts
        if self._audit is not None:
            self._audit.above = height_of(parts, console, options)
            yield self._audit

    def _parts(self, console: Console) -> Iterator[RenderableType]:
        if self._start is None:
            yield Text("starting ...", style="dim")
            return
        yield Text(f"robust0 certify · {self._start.title}", style="bold")
        if self._now is not None:
            yield self._proofs(self._now, console.width)
            yield self._table(self._start, self._now, console.width)
        if self._trial is not None:
            yield self._trials(self._trial)
        if self._last:
            yield Text(self._last, style="dim")

    def _proofs(self, now: CertifyProgress, width: int) -> Table:
        grid = Table.grid(padding=(0, 1))
        bar = ProgressBar(now.images, now.done, width=max(8, min(40, width - 44)))
        left = f"{clock(self._left)} left" if now.done < now.images else "done"
        grid.add_row("proofs", bar, f"{now.done:,} of {now.images:,}", left)
        return grid

    def _table(self, start: CertifyStarted, now: CertifyProgress, width: int) -> Table:
        table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
        table.add_column("certified at", no_wrap=True)
        table.add_column("clean", justify="right", no_wrap=True)
        names = max(len("certified at"), *(len(tidy(name, 20)) for name, _ in now.standings))
        short = names + 8 + 11 * len(start.pixels) > width  # "10 pixels" where there is room
        asked = start.pixels[: max(1, (width - names - 8) // 8)] if short else start.pixels
        for count in asked:
            head = f"{count:,}" if short else pixels(count)
            table.add_column(head, justify="right", no_wrap=True)
        for place, (name, shares) in enumerate(now.standings):
            cells = [percent(share) for share in shares[: 1 + len(asked)]]
            table.add_row(tidy(name, 20), *cells, style="bold green" if place == 0 else "dim")
        return table

    def _trials(self, now: TrialProgress) -> Text:
        text = Text(f"attacks on certificates  {now.done:,} of {now.trials:,}  ", style="dim")
        text.append(f"{now.classifier}, {now.attack}  ")
        if now.broken:
            text.append(f"{len(now.broken)} BROKEN: images {_listed(now.broken)}", style="bold red")
        else:
            text.append("none broken", style="green")
        return text


class PlainCertifyView:
    """One line per phase and per minute, for logs."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._console, self._now = console, now
        self._said = now()
        self._audit = PlainAuditView(console, now)

    def show(self, event: Shown) -> None:
        """Take one event."""
        match event:
            case CertifyStarted():
                self._say(f"robust0 certify · {event.title}")
                if event.proofs:
                    self._say(f"resumed: {event.proofs:,} proofs were already there")
                self._asked = event.pixels
            case CertifyProgress():
                ended = event.done == event.images and not self._ended
                if ended or self._now() - self._said >= 60:
                    self._ended = self._ended or ended
                    self._say(proved_line(event, self._asked))
            case TrialProgress():
                if event.broken or event.done == event.trials or self._now() - self._said >= 60:
                    self._say(trial_line(event))
            case CertifyFinished():
                self._say(ending(event))
            case _:
                self._audit.show(event)

    _asked: tuple[int, ...] = ()
    _ended = False  # all proofs are there, and that was said

    def _say(self, text: str) -> None:
        self._said = self._now()
        self._console.print(Text(text), soft_wrap=True)


def proved_line(event: CertifyProgress, asked: tuple[int, ...]) -> str:
    """Where the proofs stand, by the headline."""
    name, shares = event.standings[0]
    parts = [f"clean {percent(shares[0])} ({interval(shares[0])})"]
    parts += [
        f"certified at {k}: {percent(share)}" for k, share in zip(asked, shares[1:], strict=True)
    ]
    return f"{event.done:,} of {event.images:,} proofs, {tidy(name)}: {', '.join(parts)}"


def trial_line(event: TrialProgress) -> str:
    """What attacks made of the certificates so far."""
    broken = f"{len(event.broken)} BROKEN: images {_listed(event.broken)}" if event.broken else ""
    return (
        f"{event.done:,} of {event.trials:,} attacks within certified radii "
        f"({tidy(event.classifier)}, {tidy(event.attack)}): {broken or 'none broken'}"
    )


def ending(event: CertifyFinished) -> str:
    """How the run ended."""
    if event.interrupted is not None:
        return f"interrupted; go on with {shell('certify', '--resume', event.path or '')}"
    return f"finished in {tidy(event.path)}" if event.path else "finished"


def _listed(images: tuple[int, ...]) -> str:
    named = ", ".join(str(image) for image in images[:8])
    return f"{named}, ..." if len(images) > 8 else named
