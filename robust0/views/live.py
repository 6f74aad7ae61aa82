"""Which view of a long run fits where stderr goes: live, plain lines, or none."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live

from robust0.views.output import Verbosity, err

_Taken = TypeVar("_Taken", contravariant=True)
_Event = TypeVar("_Event")


class View(Protocol[_Taken]):
    """Shows the events of a run."""

    def show(self, event: _Taken) -> None:
        """Take one event."""


class LiveView(View[_Taken], Protocol[_Taken]):
    """A view that Rich draws again and again."""

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw the present state."""


class Silent:
    """Shows nothing: for processes that do not lead."""

    def show(self, event: object) -> None:
        """Take one event."""


@contextmanager
def fitting_view(
    live: Callable[[], LiveView[_Event]],
    plain: Callable[[Console], View[_Event]],
    *,
    lines: bool = False,
    silent: bool = False,
    transient: bool = False,
) -> Iterator[View[_Event]]:
    """Live on a terminal, plain lines elsewhere or if ``lines``, nothing if ``silent``.

    ``transient``: what was live vanishes at the end, since a report says it again.
    """
    console = err()
    if silent or Verbosity.quiet:
        yield Silent()
    elif lines or not console.is_terminal or console.is_dumb_terminal:
        yield plain(console)
    else:
        view = live()
        try:
            with Live(view, console=console, refresh_per_second=4, transient=transient):
                yield view
        finally:
            words = getattr(view, "last_words", lambda: None)()
            if words is not None:
                console.print(words, soft_wrap=True)
