"""Sparse-RS [Croce22]: random search over which sites to paint with which corner colours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from annotated_types import Gt, Le

from robust0.attacks.base import Attack, AttackName, Efforts, Reply, Rows, State, begin
from robust0.lazy import torch
from robust0.losses import cross_entropy, margin
from robust0.registry import setting
from robust0.threats.sparse import free_sites

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.threats import Threat

_START, _COLOUR, _SWAP = 0, 1, 2  # lanes of the random stream
# [Croce22] The share of sites that move is p_init divided by these, up to these of 10,000 queries.
_SHRINKING: Final = (
    (0, 1), (50, 2), (200, 4), (500, 5), (1000, 6), (2000, 8), (4000, 10), (6000, 12), (8000, 15),
)  # fmt: skip
_LAST: Final = 20
_WIDEST: Final = 31  # bits of a corner
_SEED: Final = (1 << _WIDEST) - 1


def swap_sizes(queries: int, p_init: float, budget: int, free: int) -> list[int]:
    """How many sites the candidate of query 1, 2, ... swaps; entry 0 is the start and unused.

    The schedule is made for 10,000 queries and is stretched to ``queries``. With no ``free`` site
    the used ones are recoloured, otherwise no more are swapped than there are free.
    """
    most = min(budget, free) if free else budget
    sizes = []
    for query in range(queries + 1):
        scaled = 10_000 * query // queries
        divisor = next((by for until, by in _SHRINKING if scaled <= until), _LAST)
        # The small number undoes rounding: 0.1 * 30 / 3 must not floor to 0.
        sizes.append(min(max(math.floor(p_init * budget / divisor + 1e-9), 1), most))
    return sizes


def words_needed(size: int, of: int) -> int:
    """How many random words :func:`distinct` takes for ``size`` out of ``of`` positions."""
    if size == 1:
        return 1
    return of if of < 16 * size else 2 * size + 8


def distinct(words: Tensor, size: int, of: int) -> Tensor:
    """(B, size) distinct positions in [0, of), uniform and in random order, from 32-bit words.

    Few positions are ordered by random keys. Of many, the first distinct ones of a longer
    independent draw are taken, which costs nothing per position; that the draw is too short has a
    probability under 1e-16, and would repeat a position.
    """
    if size > 1 and words.shape[1] == of:
        return words.topk(size, dim=1).indices
    draws = (words * of) >> 32
    if size == 1:
        return draws
    ordered, drawn = draws.sort(dim=1, stable=True)
    again = torch.nn.functional.pad(ordered[:, 1:] == ordered[:, :-1], (1, 0))
    # By time of drawing, with repetitions after everything else.
    turn = torch.add(drawn, again, alpha=words.shape[1])
    return ordered.gather(1, turn.topk(size, dim=1, largest=False).indices)


def corner_bits(groups: int) -> int:
    """How many bits of a pair name its corner: one per value, or as many as a word can spare."""
    return min(groups, _WIDEST)


def corner_values(pairs: Tensor, groups: int) -> Tensor:
    """(B, g, n) zeros and ones: bit c of a pair's corner is value c of the site.

    Where a site has more values than a corner has bits, the corner is the seed of a hash that
    makes them: two corners then differ in about half of all values.
    """
    value = torch.arange(groups, device=pairs.device)[:, None]
    if groups <= _WIDEST:
        return ((pairs[:, None] >> value) & 1).float()
    mixed = (pairs[:, None] & _SEED) ^ (value * 0x9E3779B9 & _SEED)
    for factor in (0x45D9F3B, 0x119DE1F3):
        mixed = ((mixed ^ (mixed >> 15)) * factor) & _SEED
    return ((mixed >> 13) & 1).float()


def paint(clean: Tensor, pairs: Tensor) -> Tensor:
    """Clean sites (B, g, S) with pairs (B, n) of a site and a corner applied.

    A pair is a site above :func:`corner_bits` of a corner. Pairs that share a site must be equal.
    """
    colours = corner_values(pairs, clean.shape[1])
    sites = (pairs >> corner_bits(clean.shape[1]))[:, None].expand_as(colours)
    return clean.scatter(2, sites, colours)


@dataclass(frozen=True, slots=True)
class SwapSchedule:
    """Swap sizes by query, shared by all rows (not a tensor attribute of the state)."""

    sizes: Tensor  # (queries + 1,)
    widest: int


@dataclass(slots=True, kw_only=True)
class SparseRSState(State):
    """The incumbent and the trial of each row: pairs of exactly k distinct sites and corners.

    Pairs say the same as an image at a tiny part of its size, so that moving them costs nothing.
    """

    pairs: Tensor  # (B, k)
    trial: Tensor  # (B, k)
    lowest: Tensor  # (B,) objective of the incumbent
    schedule: SwapSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseRS(Attack[SparseRSState]):
    """Swap a shrinking number of painted sites for fresh ones; keep the swap if it lowers the loss.

    Black box: it reads logits only. Every image asked about differs from the clean one in at most k
    sites, each of a corner colour. Where k covers the image there is nothing to swap with, and used
    sites are recoloured. Reference: [Croce22].
    """

    kind: ClassVar[str] = "sparse-rs"
    revision: ClassVar[int] = 1
    black_box: ClassVar[bool] = True
    efforts: ClassVar[Efforts] = {
        "smoke": {"queries": 50},
        "quick": {"queries": 1_000},
        "standard": {"queries": 3_000},
        "paper": {"queries": 10_000},
    }
    configured: ClassVar[tuple[AttackName, ...]] = (AttackName("sparse-rs", rank=2),)

    queries: Annotated[int, Gt(0)] = setting(1000, "forwards per image")
    p_init: Annotated[float, Gt(0), Le(1)] = setting(
        0.8, "share of the sites moved at first", "[Croce22]"
    )
    loss: Literal["ce", "margin"] = setting("ce", "what the attack climbs", "[Croce22]")

    def passes(self, threat: Threat, image_shape: tuple[int, int, int], classes: int) -> int:  # noqa: ARG002
        """One forward per query."""
        return self.queries

    def start(self, rows: Rows) -> SparseRSState:
        """Random sites in random corner colours: the first query."""
        clean = rows.threat.view(rows.images)
        _, groups, count = clean.shape
        k, zero = rows.k, torch.zeros_like(rows.ids)
        words = rows.stream.words(rows.ids, zero, words_needed(k, count), _START)
        bits = corner_bits(groups)
        corner = rows.stream.words(rows.ids, zero, k, _COLOUR) & ((1 << bits) - 1)
        pairs = (distinct(words, k, count) << bits) | corner
        sizes = swap_sizes(self.queries, self.p_init, k, count - k)
        return SparseRSState(
            **begin(rows),
            pairs=pairs,
            trial=pairs.clone(),  # the engine writes into a state's tensors
            lowest=torch.full_like(clean[:, 0, 0], torch.inf),
            schedule=SwapSchedule(torch.tensor(sizes, device=clean.device), max(sizes[1:])),
        )

    def ask(self, state: SparseRSState) -> Tensor:
        """The clean image with the trial's sites painted."""
        return state.image(paint(state.clean, state.trial))

    def objective(self, state: SparseRSState, logits: Tensor) -> Tensor:
        """Cross entropy or the negative margin; the search raises it."""
        if self.loss == "ce":
            return cross_entropy(logits, state.labels)
        return -margin(logits, state.labels)

    def tell(self, state: SparseRSState, reply: Reply) -> Tensor:
        """Keep the trial where it is better or fools the model, then draw the next one."""
        value = -self.objective(state, reply.logits)
        accepted = (value < state.lowest) | (margin(reply.logits, state.labels) < 0)
        state.lowest = torch.fmin(state.lowest, value)  # an answer may be NaN
        state.pairs = torch.where(accepted[:, None], state.trial, state.pairs)
        state.step = state.step + 1
        self._propose(state)
        return state.step >= self.queries

    def _propose(self, state: SparseRSState) -> None:
        (_, groups, count), k = state.clean.shape, state.k
        wide, free, bits = state.schedule.widest, count - k, corner_bits(groups)
        # One call for all draws of the query: its cost hardly depends on how many words it makes.
        first = words_needed(wide, k)
        second = first + (words_needed(wide, free) if free else 0)
        words = state.stream.words(state.ids, state.step, second + wide + 1, _SWAP)
        columns = distinct(words[:, :first], wide, k)
        old = state.pairs.gather(1, columns)
        corner = words[:, second:-1] & ((1 << bits) - 1)
        if free:
            ranks = distinct(words[:, first:second], wide, free)
            trial = (free_sites(state.pairs >> bits, ranks) << bits) | corner
            place = (trial[:, None, :1] >> bits).expand(-1, groups, -1)
            present = state.clean.gather(2, place)
            idle = (present == corner_values(trial[:, :1], groups)).all(dim=1)
        else:
            trial = (old >> bits << bits) | corner
            idle = trial[:, :1] == old[:, :1]
        # A single swap must change something: where it would not, one bit is flipped.
        size = state.schedule.sizes[state.step][:, None]
        bit = (words[:, -1:] * bits) >> 32
        trial[:, :1] ^= (idle & (size == 1)).to(torch.int64) << bit
        moves = torch.arange(wide, device=trial.device) < size
        state.trial = state.pairs.scatter(1, columns, torch.where(moves, trial, old))
