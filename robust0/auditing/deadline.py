"""A limit of time for an audit in rounds: which doubling still begins.

What a machine manages until then is not the same twice. So the moment that ends an audit raises a
flag, which is fatal, goes into every report and is all that a resumption needs to know.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from robust0.auditing.plan import AuditPlan, Book, Stage
from robust0.auditing.rounds import RoundsPlan
from robust0.auditing.store import read_clock
from robust0.records import TIME_LIMIT, Flag


@dataclass(slots=True)
class Deadline:
    """The clock of one run over all its resumptions."""

    plan: AuditPlan
    minutes: float | None
    earlier: float = 0.0  # seconds of the processes before this one
    clock: Callable[[], float] = time.monotonic
    begun: float = 0.0

    def start(self, folder: Path | None) -> None:
        """Begin to count, where an earlier process of the run has stopped."""
        self.begun = self.clock()
        seconds, attacks = read_clock(folder) if folder is not None else (0.0, {})
        # A killed process has left the times of its attacks alone.
        self.earlier = max(seconds, sum(attacks.values()))

    def reached(self, stage: Stage, images: Sequence[int], book: Book) -> Iterator[Flag]:
        """The flag, once: a round is to begin that would likely end after the limit."""
        if self.minutes is None or book.timed_out or not isinstance(self.plan, RoundsPlan):
            return
        seconds = self.earlier + self.clock() - self.begun
        ahead = self.plan.share_ahead(stage, images, book)
        if ahead is not None and seconds * (1 + ahead) > 60 * self.minutes:
            book.timed_out = True
            yield Flag(
                name=TIME_LIMIT,
                fatal=True,
                message=f"the limit of {self.minutes:g} minutes ended the search: how far it came "
                "depends on the machine; a higher --max-minutes would lower the accuracy further",
            )


def timed_out(flags: Iterable[Flag]) -> bool:
    """Whether the clock has ended a run."""
    return any(flag.name == TIME_LIMIT for flag in flags)
