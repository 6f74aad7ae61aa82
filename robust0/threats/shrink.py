"""Gives back the sites that a hit does not need, so that the number left says something."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from robust0.threats.base import Holds

HOLDS = 0.3  # how often a hit holds without a chunk, about; only the number of calls depends on it


@dataclass(frozen=True, slots=True)
class Question:
    """The next question about a hit: does it hold without these sites too?"""

    order: tuple[int, ...]  # its sites, in the order in which they are tried
    size: int  # of the chunk asked about
    at: int = 0
    given: tuple[int, ...] = ()  # back already
    tries: int = 0

    def without(self) -> list[int]:
        """The sites given back if it holds."""
        return [*self.given, *self.order[self.at : self.at + self.size]]

    def told(self, *, holds: bool) -> Question:
        """The question after this one; halves first, then single sites."""
        at, size, given = self.at, self.size // 2, self.given
        if holds or self.size == 1:
            at += self.size
            size = min(self.size, len(self.order) - at)
            given = tuple(self.without()) if holds else given
        return Question(self.order, size, at, given, self.tries + 1)

    def ahead(self, count: int) -> list[Question]:
        """This question and those that may follow, the likeliest first; at most ``count``."""
        found: list[Question] = []
        heap = [(-1.0, 0, self)]
        while heap and len(found) < count:
            chance, _, trial = heappop(heap)
            found.append(trial)
            for holds, share in ((False, 1 - HOLDS), (True, HOLDS)):
                after = trial.told(holds=holds)
                if not after.done:
                    heappush(heap, (chance * share, 2 * len(found) + holds, after))
        return found

    @property
    def done(self) -> bool:
        """One site must stay: the clean image is classified correctly."""
        return self.size == 0 or self.tries >= len(self.order)


def give_back(
    orders: Sequence[Sequence[int]],
    without: Callable[[list[int], list[list[int]]], Tensor],
    holds: Holds,
    width: int,
) -> Tensor:
    """Hits with as few sites as a greedy search leaves; at most one call per site of a hit.

    Rows do not influence one another: those that a call has to spare ask ahead, which saves calls
    and changes no answer.

    Args:
        orders: by hit, its sites in the order in which they are tried.
        without: makes the images of these rows with some of their sites given back.
        holds: asks the model about such images.
        width: images of one call.
    """
    trials = [Question(tuple(order), max(1, len(order) // 2)) for order in orders]
    while active := [row for row, trial in enumerate(trials) if not trial.done]:
        for first in range(0, len(active), width):
            rows = active[first : first + width]
            asked = [(r, t) for r in rows for t in trials[r].ahead(width // len(rows))]
            images = without([r for r, _ in asked], [t.without() for _, t in asked])
            answers = dict(zip(asked, holds([r for r, _ in asked], images), strict=True))
            for row in rows:
                while (answer := answers.get((row, trials[row]))) is not None:
                    trials[row] = trials[row].told(holds=answer)
    return without(list(range(len(trials))), [list(trial.given) for trial in trials])
