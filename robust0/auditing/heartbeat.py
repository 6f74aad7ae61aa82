"""Signs of life between the processes of an audit, in files: they share nothing else.

Each of several processes counts in ``parts/alive-RANK``, and looks at the counts of others while
it waits for their verdicts, so that it does not wait for a process that is gone. Counts are
compared with each other and not with a clock, because hosts have clocks of their own.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from robust0.errors import EvaluationError

BEAT_SECONDS = 2.0
SILENT_SECONDS = 60.0  # without a beat: dead, or cut off


def _sign(folder: Path, rank: int) -> Path:
    return folder / "parts" / f"alive-{rank}"


@contextmanager
def beating(folder: Path | None, rank: int) -> Iterator[None]:
    """Count for as long as the block runs; without a folder there is nobody to see it."""
    if folder is None:
        yield
        return
    over = Event()

    def beat() -> None:
        count = 0
        while not over.is_set():
            with contextlib.suppress(OSError):  # not made yet, or merged and removed
                _sign(folder, rank).write_text(str(count))
            count += 1
            over.wait(BEAT_SECONDS)

    thread = Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class LifeSigns:
    """A process's watch over the others."""

    def __init__(self, folder: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._seen: dict[int, tuple[str, float]] = {}  # last sign, and when it was new

    def look(self, late: Iterable[int]) -> None:
        """Refuse to wait for processes that have been silent for long."""
        now = self._clock()
        for rank in late:
            sign = self._read(rank)
            before, since = self._seen.get(rank, (sign, now))
            if sign != before:
                since = now
            self._seen[rank] = sign, since
            if now - since > SILENT_SECONDS:
                raise EvaluationError(
                    f"process {rank} of the audit has stopped: no sign of life for "
                    f"{now - since:.0f} seconds",
                    f"go on with robust0 audit --resume {self._folder}; what it found is kept",
                )

    def _read(self, rank: int) -> str:
        with contextlib.suppress(OSError):
            return _sign(self._folder or Path(), rank).read_text()
        return ""
