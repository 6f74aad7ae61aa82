"""CornerSearch [Croce19]: rank all one-site corner changes, then combine the best of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Gt

from robust0.attacks.base import Attack, AttackName, Efforts, Reply, Rows, State, begin
from robust0.attacks.sparse_rs import distinct, paint, words_needed
from robust0.lazy import torch
from robust0.losses import margin
from robust0.registry import setting

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.threats import Threat

_TABLE, _SEARCH = 0, 1  # lanes of the random stream
_PAIR = 0xFFFFFFFF  # the low word of an entry
_NOTHING, _LEAST = 2**63 - 1, -(2**63)


@dataclass(frozen=True, slots=True)
class CornerSearchPlan:
    """The queries of a row: first ``table`` single changes, then ``search`` combinations."""

    table: int
    search: int
    top: int


@dataclass(slots=True, kw_only=True)
class CornerSearchState(State):
    """The best entries of each class's ranking; a pair is ``site * 2**g + corner``."""

    chosen: Tensor  # (B, table) int32 pairs of a subsampled table; (B, 0) if it is full
    rankings: Tensor  # (B, K, top) ascending entries of ``ranked``
    plan: CornerSearchPlan


def ranked(lead: Tensor, pair: Tensor) -> Tensor:
    """Leads and pairs as int64 entries that sort by lead, then by pair; the low word is the pair.

    The bits of a float32, the lower ones flipped if it is negative, sort like the number.
    """
    bits = lead.contiguous().view(torch.int32)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (bits.to(torch.int64) << 32) | pair


@dataclass(frozen=True, slots=True, kw_only=True)
class CornerSearch(Attack[CornerSearchState]):
    """Try single sites in single corner colours, then random combinations of the best of them.

    Ranking j orders the single changes by the label's lead over class j, the label's own ranking by
    the margin. Black box: it reads logits only. Every image asked about differs from the clean one
    in at most k sites, each of a corner colour. With ``forwards`` a random subset of the single
    changes takes half of them and combinations of k the rest; without, the table is complete, and
    every ranking is given ``iterations`` combinations of k (``fixed``) or of 2, 3, ..., k sites
    (``sweep``). Reference: [Croce19].
    """

    kind: ClassVar[str] = "corner-search"
    units: ClassVar[tuple[str, ...] | None] = ("pixel", "feature")  # it lists a site's corners
    revision: ClassVar[int] = 1
    black_box: ClassVar[bool] = True
    efforts: ClassVar[Efforts] = {
        "smoke": {"forwards": 50},
        "quick": {"forwards": 1_000},
        "standard": {"forwards": 3_000},
        "paper": {"forwards": None, "iterations": 1_000, "mode": "sweep"},
    }
    configured: ClassVar[tuple[AttackName, ...]] = (AttackName("corner-search", rank=7),)

    forwards: Annotated[int, Gt(0)] | None = setting(
        1000, "forwards per image; null: the whole table of single changes"
    )
    iterations: Annotated[int, Gt(0)] = setting(
        1000, "combinations per class, where forwards is null", "[Croce19]"
    )
    top: Annotated[int, Gt(0)] = setting(
        100, "single changes that combinations are drawn from", "[Croce19]"
    )
    mode: Literal["fixed", "sweep"] = setting(
        "fixed", "combine exactly the budget, or all sizes from two on", "[Croce19]"
    )

    def __post_init__(self) -> None:
        """With ``forwards`` combinations have k sites, and records say so."""
        if self.forwards is not None:
            object.__setattr__(self, "mode", "fixed")

    @property
    def notes(self) -> tuple[str, ...]:
        """Says when the table is not the whole one."""
        return () if self.forwards is None else ("subsampled",)

    def plan(self, budget: int, groups: int, sites: int, classes: int) -> CornerSearchPlan:
        """How many queries of each sort a row makes."""
        every = sites << groups
        if self.forwards is not None:
            # With one site there is nothing to combine.
            share = self.forwards if budget == 1 else max(self.forwards // 2, 1)
            table = min(every, share)
            rest = 0 if budget == 1 else self.forwards - table
            return CornerSearchPlan(table, rest, min(self.top, table))
        rounds = (budget - 1) if self.mode == "sweep" else min(budget - 1, 1)
        return CornerSearchPlan(every, rounds * classes * self.iterations, min(self.top, every))

    def passes(self, threat: Threat, image_shape: tuple[int, int, int], classes: int) -> int:
        """One forward per table entry and per combination."""
        groups, sites = threat.shape(torch.empty(1, *image_shape, device="meta"))
        plan = self.plan(int(threat.budget), groups, sites, classes)
        return plan.table + plan.search

    def start(self, rows: Rows) -> CornerSearchState:
        """Empty rankings, and the draw of the pairs to try if not all are tried."""
        clean = rows.threat.view(rows.images)
        count, groups, sites = clean.shape
        plan = self.plan(rows.k, groups, sites, rows.classes)
        every, size = sites << groups, plan.table if self.forwards is not None else 0
        words = rows.stream.words(
            rows.ids, torch.zeros_like(rows.ids), words_needed(size, every) if size else 0, _TABLE
        )
        chosen = distinct(words, size, every) if size else words
        return CornerSearchState(
            **begin(rows),
            chosen=chosen.to(torch.int32),
            rankings=torch.full(
                (count, rows.classes, plan.top), _NOTHING, dtype=torch.int64, device=clean.device
            ),
            plan=plan,
        )

    def ask(self, state: CornerSearchState) -> Tensor:
        """The next single change, or the next combination drawn from a ranking."""
        k, groups = state.k, state.clean.shape[1]
        searching = state.step >= state.plan.table
        ranking, size = self._turn(state)
        picks = self._draw(state, ranking)
        single = torch.where(searching, picks[:, 0], self._single(state))
        # Columns beyond the size repeat the first one, which paints nothing new.
        drawn = torch.arange(k, device=picks.device) < torch.where(searching, size, 0)[:, None]
        pairs = torch.where(drawn, picks, single[:, None])
        sites, order = (pairs >> groups).sort(dim=1, stable=True)
        # A site drawn twice gets one colour, that of the lowest column, so that all writes agree.
        # In the paper the last draw wins: draws are exchangeable, and column 0 counts as the last.
        winner = order.gather(1, torch.searchsorted(sites, sites))
        return state.image(paint(state.clean, pairs.gather(1, winner)))

    def objective(self, state: CornerSearchState, logits: Tensor) -> Tensor:
        """The negative margin (never differentiated)."""
        return -margin(logits, state.labels)

    def tell(self, state: CornerSearchState, reply: Reply) -> Tensor:
        """Sort a single change into every ranking; combinations leave no trace."""
        label = state.labels[:, None]
        lead = reply.logits.gather(1, label) - reply.logits
        lead = lead.scatter(1, label, margin(reply.logits, state.labels)[:, None])
        entry = ranked(lead, self._single(state)[:, None])
        entry = entry.masked_fill((state.step >= state.plan.table)[:, None], _NOTHING)[:, :, None]
        # Insertion into a sorted list: the middle one of left neighbour, new and old entry.
        left = torch.nn.functional.pad(state.rankings[:, :, :-1], (1, 0), value=_LEAST)
        state.rankings = torch.maximum(left, torch.minimum(state.rankings, entry))
        state.step = state.step + 1
        return state.step >= state.plan.table + state.plan.search

    def _single(self, state: CornerSearchState) -> Tensor:
        """(B,) the pair of this step, meaningless once the table is done."""
        step = state.step.clamp(max=state.plan.table - 1)
        if self.forwards is None:
            return step
        return state.chosen.gather(1, step[:, None])[:, 0].to(torch.int64)

    def _turn(self, state: CornerSearchState) -> tuple[Tensor, Tensor]:
        """(B,) whose ranking this step draws from and how many sites it combines."""
        turn = (state.step - state.plan.table).clamp(min=0)
        classes, k = state.rankings.shape[1], state.k
        if self.forwards is not None:
            # The label's own ranking, the untargeted one, first: a short budget may end with it.
            return (state.labels + turn) % classes, torch.full_like(turn, k)
        ranking = (turn // self.iterations) % classes
        if self.mode == "fixed":
            return ranking, torch.full_like(turn, k)
        return ranking, (2 + turn // (self.iterations * classes)).clamp(max=k)

    def _draw(self, state: CornerSearchState, ranking: Tensor) -> Tensor:
        """(B, k) pairs, drawn with replacement; rank r has probability (2 (N - r) - 1) / N**2."""
        k, top = state.k, state.plan.top
        # That law is the one of the smaller of two uniform draws.
        ranks = state.stream.integers(state.ids, state.step, 2 * k, top, _SEARCH)
        ranks = torch.minimum(ranks[:, :k], ranks[:, k:])
        entries = state.rankings.gather(1, ranking[:, None, None].expand(-1, 1, top))[:, 0]
        return entries.gather(1, ranks) & _PAIR
