"""One model call of a search, and who makes it: the caller itself, or threads, one per lane."""

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, Self

import torch
from torch import Tensor

from robust0.attacks.base import Attack, Reply, S
from robust0.losses import margin
from robust0.models.oracle import Oracle
from robust0.threat import Threat


@dataclass(frozen=True, slots=True)
class Call(Generic[S]):
    """The rows of one model call; nobody else touches ``part`` while it is made."""

    slots: list[int]
    index: Tensor  # the same, on the device
    part: S
    gradient: bool


@dataclass(frozen=True, slots=True)
class Told:
    """What a call brought, besides moving its rows on."""

    sites: Tensor  # (B, g, S) the images asked about
    distance: Tensor  # (B,) their margins, infinite beyond the budget
    fooled: Tensor  # (B,)
    flags: list[list[bool]]  # fooled, spent, wants a gradient next: on the host


def query(attack: Attack[S], oracle: Oracle, threat: Threat, call: Call[S]) -> Told:
    """One query of these rows."""
    part = call.part
    images = attack.ask(part)
    if call.gradient:
        logits, slope = oracle.gradient(images, lambda answer: attack.objective(part, answer))
        reply = Reply(logits, threat.view(slope))
    else:
        logits = oracle.logits(images)
        reply = Reply(logits)
    distance = margin(logits, part.labels)
    # An answer that is no number is for the judge to look at, whatever its argmax says.
    fooled = (logits.argmax(dim=1) != part.labels) | ~logits.isfinite().all(dim=1)
    if attack.leaves_budget:
        feasible = threat.count(part.image(part.clean), images) <= threat.budget
        distance = distance.where(feasible, torch.inf)
        fooled = fooled & feasible
    spent = attack.tell(part, reply)
    # The one transfer to the host of this call.
    flags = torch.stack([fooled, spent, attack.wants_gradient(part)]).tolist()
    return Told(threat.view(images), distance, fooled, flags)


class Crew(Generic[S]):
    """Makes calls: in threads, one per lane, or at once where there is one lane."""

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._flying: dict[Future[Told], Call[S]] = {}
        self._stack = ExitStack()
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._lanes > 1:
            self._threads = self._stack.enter_context(ThreadPoolExecutor(self._lanes))
        return self

    def __exit__(self, *problem: object) -> None:
        for future in self._flying:
            future.cancel()
        self._stack.close()

    @property
    def is_busy(self) -> bool:
        """Whether every lane has a call."""
        return len(self._flying) >= self._lanes

    @property
    def has_room(self) -> bool:
        """With threads one call waits, so that a lane never does."""
        return len(self._flying) < self._lanes + (self._threads is not None)

    def send(self, call: Call[S], work: Callable[[], Told]) -> None:
        """Have a call made."""
        if self._threads is not None:
            self._flying[self._threads.submit(work)] = call
            return
        done: Future[Told] = Future()
        done.set_result(work())
        self._flying[done] = call

    def finished(self) -> Iterator[tuple[Call[S], Told]]:
        """The calls that have ended; waits for one if there are any."""
        if self._flying:
            done, _ = wait(self._flying, return_when=FIRST_COMPLETED)
            for future in [future for future in self._flying if future in done]:
                yield self._flying.pop(future), future.result()
