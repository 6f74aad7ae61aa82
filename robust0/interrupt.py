"""Ctrl-C and SIGTERM as a flag that loops look at between steps, so that they can save first."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class Interrupt:
    """Remembers the first SIGINT or SIGTERM; a second Ctrl-C interrupts at once.

    Outside the main thread, where Python allows no handlers, it never fires.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._previous: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
