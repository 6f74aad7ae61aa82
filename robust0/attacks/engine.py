"""Drives an attack over many images: keeps model calls full, counts passes, has claims judged.

A pool holds several calls' worth of rows. Each call takes the least advanced rows that want the
same kind of answer, so calls stay full to the end and rows with long budgets do not trail behind.
Which rows share a call never matters to a row: see robust0.attacks.base and
``Oracle.batch_size``. Where the oracle has several lanes, that many calls are made at once; threads
share nothing but the model.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic

import torch
from torch import Tensor

from robust0.attacks.base import Attack, Rows, S
from robust0.attacks.calls import Call, CallResult, Crew, Pulse, query
from robust0.attacks.judge import Judgement, judge
from robust0.models.fast.oracle import Oracle
from robust0.rng import Stream
from robust0.threats import Threat
from robust0.threats.perturbation import Perturbation

POOL_CALLS = 8  # calls' worth of rows held at once
POOL_BYTES = 1 << 29  # unless their states would need more memory than this
# A hit of a rounded search may not hold, and its row must then catch up with the others, so it does
# not wait longer than this many calls for the judge, whose own call costs about one or two.
LONG_WAIT = 64


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attack did to one image; ``attempt`` is the hit, or else the lowest margin found."""

    image: int
    label: int
    fooled: bool
    prediction: int
    margin: float
    distance: float
    forwards: int
    backwards: int
    fragile: bool
    violation: str
    attempt: Perturbation


@dataclass(frozen=True, slots=True)
class Waiting:
    """Correctly classified images not yet attacked; ``fetch`` gives images, labels and ids."""

    positions: Sequence[int]
    fetch: Callable[[Sequence[int]], tuple[Tensor, Tensor, Tensor]]


def search(
    attack: Attack[S], name: str, oracle: Oracle, waiting: Waiting, threat: Threat, seed: int
) -> Iterator[Pulse | Outcome]:
    """Attack every waiting image; outcomes come in the order in which images finish."""
    stream = Stream.of("attack", seed, name, threat)
    pool = _Pool(attack, oracle, threat, stream, waiting)
    pool.refill()
    make = partial(query, attack, oracle, threat)
    with Crew(oracle.lanes, pool, make) as crew:
        while (pulse := crew.next()) is not None:
            yield pulse
            while pool.is_due:
                with crew.turn:
                    claims = pool.claims()
                verdict = judge(oracle, threat, claims.images, claims.candidates, claims.labels)
                with crew.turn:
                    outcomes = [*pool.settle(claims, verdict)]
                    crew.turn.notify_all()
                yield from outcomes
                with crew.turn:
                    pool.refill()
                    crew.turn.notify_all()


@dataclass(frozen=True, slots=True)
class _Claims:
    """Finished rows for the judge; calls go on while it looks at them."""

    slots: list[int]
    images: Tensor  # (N, C, H, W), clean
    candidates: Tensor
    labels: Tensor
    ids: list[int]


@dataclass(slots=True)
class _Pool(Generic[S]):
    """The rows under attack: tensors on the device, what decides the schedule on the host."""

    attack: Attack[S]
    oracle: Oracle
    threat: Threat
    stream: Stream
    waiting: Waiting
    classes: int = 0
    taken: int = 0  # how many waiting images have been given a slot
    state: S | None = None
    best: Tensor = field(default_factory=lambda: torch.empty(0))  # (P, g, S) lowest-margin images
    best_margin: Tensor = field(default_factory=lambda: torch.empty(0))
    forwards: list[int] = field(default_factory=list)
    backwards: list[int] = field(default_factory=list)
    wants: list[bool] = field(default_factory=list)
    spent: list[bool] = field(default_factory=list)
    active: set[int] = field(default_factory=set)
    flying: set[int] = field(default_factory=set)  # those of the active rows that are in a call
    pending: set[int] = field(default_factory=set)  # finished, not yet judged
    claimed: dict[int, Tensor] = field(default_factory=dict)  # (g, S) hits among them
    waited: int = 0  # calls that ended since one of them finished
    free: list[int] = field(default_factory=list)
    full: bool = False

    def refill(self) -> None:
        """Give waiting images slots where that pays."""
        rows = self.oracle.batch_size
        while self.taken < len(self.waiting.positions):
            if self.full and not (
                len(self.free) >= rows or (self.free and len(self.active) < rows)
            ):
                break
            size = min(rows, len(self.free)) if self.full else rows
            self._admit(self.waiting.positions[self.taken : self.taken + size])

    def _admit(self, positions: Sequence[int]) -> None:
        images, labels, ids = self.waiting.fetch(positions)
        self.taken += len(positions)
        self.classes = self.classes or self.oracle.exact(images[:1]).shape[1]
        fresh = self.attack.start(Rows(images, labels, ids, self.threat, self.stream, self.classes))
        wants = self.attack.wants_gradient(fresh).tolist()
        best, infinite = fresh.clean.clone(), torch.full_like(fresh.clean[:, 0, 0], torch.inf)
        if self.full:
            slots, self.free = self.free[: len(positions)], self.free[len(positions) :]
            index = _index(slots, images.device)
            self._held().put(index, fresh)
            self.best[index], self.best_margin[index] = best, infinite
        else:
            slots = list(range(len(self.wants), len(self.wants) + len(positions)))
            self.state = fresh if self.state is None else self.state.grown(fresh)
            self.best = torch.cat([self.best.to(best), best]) if slots[0] else best
            self.best_margin = torch.cat([self.best_margin, infinite]) if slots[0] else infinite
            blank = len(slots)
            self.forwards += [0] * blank
            self.backwards += [0] * blank
            self.wants += [False] * blank
            self.spent += [False] * blank
            per_row = fresh.bytes_per_row() + best[0].numel() * 4
            room = min(POOL_CALLS * self.oracle.batch_size, POOL_BYTES // per_row)
            self.full = len(self.wants) + self.oracle.batch_size > room
        for slot, want in zip(slots, wants, strict=True):
            self.forwards[slot] = self.backwards[slot] = 0
            self.wants[slot], self.spent[slot] = want, False
        self.active.update(slots)

    def choose(self) -> Call[S] | None:
        """The next call, if any row is free for it."""
        rows = self.oracle.batch_size
        ordered = sorted(self.active - self.flying, key=lambda slot: (self.forwards[slot], slot))
        steep = [slot for slot in ordered if self.wants[slot]]
        flat = [slot for slot in ordered if not self.wants[slot]]
        gradient = len(steep) >= min(rows, len(flat) + 1)
        slots = (steep if gradient else flat)[:rows]
        if not slots:
            return None
        self.flying.update(slots)
        state = self._held()
        index = _index(slots, state.clean.device)
        return Call(slots, index, state.take(index), self.best_margin[index], gradient)

    def absorb(self, call: Call[S], told: CallResult) -> None:
        """Put the rows of a call back, with each one's lowest-margin feasible image so far."""
        self._held().move_on(call.index, call.part)
        better, *flags = told.flags
        lower = [row for row, is_better in enumerate(better) if is_better]
        if lower:
            rows = _index(lower, call.index.device)
            self.best_margin[call.index[rows]] = told.margin[rows]
            self.best[call.index[rows]] = told.sites[rows]
        for row, (slot, hit, done, want) in enumerate(zip(call.slots, *flags, strict=True)):
            self.forwards[slot] += 1
            self.backwards[slot] += call.gradient
            self.spent[slot], self.wants[slot] = done, want
            if hit:  # kept apart: it may not hold, and the best so far is still the best then
                self.claimed[slot] = told.sites[row].clone()
            if hit or done:
                self.active.discard(slot)
                self.pending.add(slot)
        self.flying.difference_update(call.slots)
        self.waited += bool(self.pending)

    @property
    def is_due(self) -> bool:
        """Whether enough rows wait for the judge, or some for long, or all that are left."""
        enough = len(self.pending) >= self.oracle.batch_size
        return enough or bool(self.pending and (self.waited >= LONG_WAIT or not self.active))

    def claims(self) -> _Claims:
        """The finished rows."""
        state, slots = self._held(), sorted(self.pending)
        self.pending.clear()
        self.waited = 0
        index = _index(slots, state.clean.device)
        best = [self.claimed.get(slot, self.best[slot]) for slot in slots]
        images, candidates = state.image(state.clean[index]), state.image(torch.stack(best))
        return _Claims(slots, images, candidates, state.labels[index], state.ids[index].tolist())

    def settle(self, claims: _Claims, verdict: Judgement) -> Iterator[Outcome]:
        """What became of them; a hit that does not hold goes back to the search."""
        columns = zip(
            claims.slots, claims.ids, claims.labels.tolist(), verdict.fooled.tolist(),
            verdict.prediction.tolist(), verdict.margin.tolist(), verdict.distance.tolist(),
            verdict.fragile.tolist(), verdict.violation, strict=True,
        )  # fmt: skip
        for row, (slot, image, label, fooled, prediction, gap, far, fragile, broken) in enumerate(
            columns
        ):
            claim = self.claimed.pop(slot, None)
            if claim is not None and not (fooled or broken) and self._goes_on(slot, claim, gap):
                continue
            self.free.append(slot)
            yield Outcome(
                image, label, fooled, prediction, gap, far, self.forwards[slot],
                self.backwards[slot], fragile, broken,
                self.threat.encode(claims.images[row], claims.candidates[row]),
            )  # fmt: skip

    def _goes_on(self, slot: int, claim: Tensor, gap: float) -> bool:
        """After a hit that does not hold: whether more is to be said about the row."""
        lower = gap < float(self.best_margin[slot])
        if lower:
            self.best[slot], self.best_margin[slot] = claim, gap
        if self.spent[slot]:
            if not lower:
                self.pending.add(slot)  # its best is another image, which was not judged yet
            return not lower
        self.active.add(slot)
        return True

    def _held(self) -> S:
        if self.state is None:
            raise RuntimeError("the pool has no rows yet")
        return self.state


def _index(rows: list[int], device: torch.device) -> Tensor:
    """Rows as an index, on the device in its own time: nobody waits for the copy."""
    return torch.tensor(rows, dtype=torch.int64).to(device, non_blocking=True)
