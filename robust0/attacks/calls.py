"""One model call of a search, and who makes it: the caller itself, or threads, one per lane."""

from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Condition, Thread
from typing import Generic, Protocol, Self

import torch
from torch import Tensor

from robust0.attacks.base import Attack, Reply, S
from robust0.losses import margin
from robust0.models.fast.oracle import Oracle
from robust0.threats import Threat


@dataclass(frozen=True, slots=True)
class Call(Generic[S]):
    """The rows of one model call; nobody else touches ``part`` while it is made."""

    slots: list[int]
    index: Tensor  # the same, on the device
    part: S
    margin: Tensor  # (B,) the lowest of each row so far
    gradient: bool


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call brought, besides moving its rows on."""

    sites: Tensor  # (B, g, S) the images asked about
    margin: Tensor  # (B,) infinite beyond the budget
    # On the host: the lowest so far but no hit, fooled, spent, wants a gradient next.
    flags: list[list[bool]]


@dataclass(frozen=True, slots=True)
class Pulse:
    """One model call of the search: how many rows it advanced and whether it went backward."""

    rows: int
    gradient: bool


def query(attack: Attack[S], oracle: Oracle, threat: Threat, call: Call[S]) -> CallResult:
    """One query of these rows."""
    part = call.part
    images = attack.ask(part)
    if call.gradient:
        logits, slope = oracle.gradient(images, lambda answer: attack.objective(part, answer))
        reply = Reply(logits, threat.view(slope))
    else:
        logits = oracle.logits(images)
        reply = Reply(logits)
    gap = margin(logits, part.labels)
    # A NaN answer is for the judge to look at, whatever its argmax says.
    fooled = (logits.argmax(dim=1) != part.labels) | ~logits.isfinite().all(dim=1)
    if attack.leaves_budget:
        feasible = threat.contains(part.image(part.clean), images)
        gap = gap.where(feasible, torch.inf)
        fooled = fooled & feasible
    spent = attack.tell(part, reply)
    better = ~fooled & (gap < call.margin)
    # The one transfer to the host of this call.
    flags = torch.stack([better, fooled, spent, attack.wants_gradient(part)]).tolist()
    return CallResult(threat.view(images), gap, flags)


class Pool(Protocol[S]):
    """The rows of a search, from which calls are made."""

    active: set[int]

    def choose(self) -> Call[S] | None:
        """The next call, if any row is free for it."""

    def absorb(self, call: Call[S], told: CallResult) -> None:
        """Put the rows of a call back."""


class Crew(Generic[S]):
    """Makes calls: in threads, one per lane, or at once where there is one lane.

    A lane chooses its calls and puts their rows back itself, so that it never waits for another
    thread to do so. What it shares with others it touches while it holds ``turn``.
    """

    def __init__(self, lanes: int, pool: Pool[S], make: Callable[[Call[S]], CallResult]) -> None:
        self.turn = Condition()
        self._pool, self._make = pool, make
        self._made: SimpleQueue[Pulse | BaseException] = SimpleQueue()
        self._over = False
        self._threads = [Thread(target=self._lane) for _ in range(lanes)] if lanes > 1 else []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        with self.turn:
            self._over = True
            self.turn.notify_all()
        for thread in self._threads:
            thread.join()

    def next(self) -> Pulse | None:
        """Waits for a call to end; None when no row is left to call with."""
        with self.turn:
            if self._made.empty() and not self._pool.active:
                return None
        if not self._threads:
            self._one()
        made = self._made.get()
        if isinstance(made, BaseException):
            raise made
        return made

    def _lane(self) -> None:
        try:
            while self._one():
                pass
        except BaseException as problem:  # noqa: BLE001 - raised again by ``next``
            self._made.put(problem)

    def _one(self) -> bool:
        with self.turn:
            while (call := self._pool.choose()) is None and not self._over:
                self.turn.wait()
            if call is None or self._over:
                return False
        told = self._make(call)
        with self.turn:
            self._pool.absorb(call, told)
            self._made.put(Pulse(len(call.slots), call.gradient))
            self.turn.notify_all()
        return True
