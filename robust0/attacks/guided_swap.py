"""Guided swap: local search over painted sites, its moves proposed by the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from robust0.attacks.base import Attack, AttackName, Efforts, Reply, Rows, begin
from robust0.attacks.corner_scan import CornerScan
from robust0.attacks.moves import (
    bits_of,
    blind_share,
    corner_colours,
    draw_columns,
    fresh_record,
    other_colours,
    pick,
    put,
    ranks,
    recorded,
)
from robust0.attacks.swap_state import GuidedSwapState
from robust0.lazy import torch
from robust0.losses import margin
from robust0.registry import setting
from robust0.threats.sparse import free_sites

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.threats import Threat

_SHORTEST = 256  # shortlisted sites, or four times the budget if that is more
_SHRINK = 1  # moves shrink with this power of the budget left
_WIDEST_BLIND = 0.5  # largest move, as a share of the budget, where random sites do better


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedSwap(Attack[GuidedSwapState | CornerScan]):
    """Swap painted sites for others the gradient recommends; keep what lowers the margin.

    robust0's own attack. A *look* is one gradient of the margin at the incumbent; it scores every
    free site painted with its best corner, every used site given back and every used site
    recoloured. Moves are drawn by these scores under Gumbel noise and tried with one forward each,
    until one lowers the margin; the attack looks again when the next move by scores is due. Every
    trial corrects the scores of the sites it moved by what the margin really did. A share of the
    moves draws its sites at random instead. Where these lower the margin more, the gradient lies:
    the share rises, and the moves grow wider. No single swap is tried twice at one incumbent; where
    all that the shortlist offers a slot have failed, any site may be drawn.

    It starts from the k sites of the largest first-order gain at the clean image. Every image asked
    about differs from the clean one in at most k sites, each of a corner colour. Where k covers the
    image used sites are recoloured. One or two sites are left to :class:`CornerScan`, which tries
    every corner, the best first.
    """

    kind: ClassVar[str] = "guided-swap"
    revision: ClassVar[int] = 2
    mixed: ClassVar[bool] = True
    efforts: ClassVar[Efforts] = {
        "smoke": {"forwards": 40},
        "quick": {"forwards": 400},
        "standard": {"forwards": 1_200},
        "paper": {"forwards": 20_000},
    }
    configured: ClassVar[tuple[AttackName, ...]] = (AttackName("guided-swap", rank=1),)

    forwards: Annotated[int, Ge(4)] = setting(400, "forward-equivalents per image")
    temperature: Annotated[float, Gt(0)] = setting(
        0.3, "noise on the scores of moves, in their standard deviations"
    )
    explore: Annotated[float, Ge(0), Le(1)] = setting(
        0.1, "share of the moves with random sites; up to nine times it"
    )
    recolour: Annotated[float, Ge(0), Le(1)] = setting(0.1, "share of the moves that only recolour")
    widest: Annotated[float, Gt(0), Le(1)] = setting(
        0.2, "largest move by scores, as a share of the budget"
    )

    def passes(self, threat: Threat, image_shape: tuple[int, int, int], classes: int) -> int:  # noqa: ARG002
        """A look costs two forward-equivalents, a trial one."""
        return self.forwards

    def start(self, rows: Rows) -> GuidedSwapState | CornerScan:
        """Nothing painted: the first look is at the clean image and chooses the sites."""
        if CornerScan.can_list(rows):
            return CornerScan.of(rows, self.forwards)
        clean = rows.threat.view(rows.images)
        count, groups, all_sites = clean.shape
        k = rows.k
        free = all_sites - k
        wide = max(self._widest(k, free))
        short = max(wide, min(free, max(_SHORTEST, 4 * k)))

        def zeros(*shape: int, dtype: torch.dtype = clean.dtype) -> Tensor:
            return torch.zeros(count, *shape, dtype=dtype, device=clean.device)

        order = torch.arange(k, device=clean.device).repeat(count, 1)
        return GuidedSwapState(
            **begin(rows),
            sites=order,
            colours=clean[:, :, :k].clone(),
            margin=torch.full_like(clean[:, 0, 0], torch.inf),
            move_slots=order[:, :wide].clone(),
            move_sites=order[:, :wide].clone(),
            move_colours=clean[:, :, :wide].clone(),
            move_entries=zeros(wide, dtype=torch.int64),
            guided=zeros(dtype=torch.bool),
            return_gain=zeros(k),
            recolour_gain=zeros(k),
            best_colours=zeros(groups, k),
            free_sites=zeros(short, dtype=torch.int64),
            free_gain=zeros(short),
            free_colours=zeros(groups, short),
            surprise=zeros(all_sites),
            tried=zeros(k, -(-short // 8), dtype=torch.uint8),
            spread=zeros(2),
            record=fresh_record(clean),
            stale=torch.zeros_like(rows.ids, dtype=torch.bool),
            looking=torch.ones_like(rows.ids, dtype=torch.bool),
            spent=torch.zeros_like(rows.ids),
        )

    def _widest(self, k: int, free: int) -> tuple[int, int]:
        """The most slots that a move by scores and one of random sites may change."""
        scored, blind = (
            min(max(int(share * k), 1), free or k)
            for share in (self.widest, max(self.widest, _WIDEST_BLIND))
        )
        return scored, blind

    def wants_gradient(self, state: GuidedSwapState | CornerScan) -> Tensor:
        """The rows that need to know about a new incumbent."""
        return state.looking.clone()

    def ask(self, state: GuidedSwapState | CornerScan) -> Tensor:
        """The incumbent after the move under trial; a look's move changes nothing."""
        if isinstance(state, CornerScan):
            return state.query()
        sites = state.sites.scatter(1, state.move_slots, state.move_sites)
        colours = put(state.colours, state.move_slots, state.move_colours)
        return state.image(put(state.clean, sites, colours))

    def objective(self, state: GuidedSwapState | CornerScan, logits: Tensor) -> Tensor:
        """The negative margin."""
        return -margin(logits, state.labels)

    def tell(self, state: GuidedSwapState | CornerScan, reply: Reply) -> Tensor:
        """Learn from a look, or keep a trial that lowered the margin; then draw the next move."""
        if isinstance(state, CornerScan):
            return state.learn(reply, self.forwards)
        gap = margin(reply.logits, state.labels)
        state.step = state.step + 1
        if reply.gradient is None:
            fall = state.margin - gap
            fall = torch.where(fall.isfinite(), fall, 0.0)
            state.learn(fall)
            better = gap < state.margin
            moved = state.sites.scatter(1, state.move_slots, state.move_sites)
            painted = put(state.colours, state.move_slots, state.move_colours)
            swapped = (state.move_sites != state.sites.gather(1, state.move_slots)).any(dim=1)
            state.record = recorded(state.record, ~state.guided, swapped, fall)
            state.sites = torch.where(better[:, None], moved, state.sites)
            state.colours = torch.where(better[:, None, None], painted, state.colours)
            state.margin = torch.where(better, gap, state.margin)
            state.stale = state.stale | better
            state.spent = state.spent + 1
        else:
            first = state.step == 1
            state.look(reply.gradient, first)
            # Later looks have been seen, as trials, and a call with a gradient may round otherwise.
            known = first | state.margin.isfinite()
            state.margin = torch.where(known, state.margin, gap)
            state.stale = first
            state.spent = state.spent + 2
        self._propose(state)
        return state.spent + 1 + state.looking > self.forwards

    def _propose(self, state: GuidedSwapState) -> None:
        """Draw the next move; a row about to look gets one that changes nothing."""
        (_, groups, count), k = state.clean.shape, state.sites.shape[1]
        wide, short, free = state.move_slots.shape[1], state.free_sites.shape[1], count - k
        bytes_ = -(-groups // 8)
        # One call for all draws: its cost hardly depends on how many words it makes.
        lengths = (4, k, short, wide + 1, wide * bytes_)
        words = state.stream.words(state.ids, state.step, sum(lengths))
        dice, for_slots, for_entries, for_ranks, for_colours = words.split(lengths, dim=1)
        chance = (dice >> 8) * 2.0**-24  # exact in float32, so never 1
        blind = (state.spread == 0).all(dim=1) & ~state.stale
        recolour = chance[:, 0] < max(self.recolour, k / count)
        random_slots = (chance[:, 1] < self.explore) | blind
        share = blind_share(state.record, self.explore)
        random_sites = (chance[:, 2] < share) | blind
        # Random sites in place of random others need no look; anything else does.
        needed = ~random_sites | (recolour & ~random_slots) | ~state.margin.isfinite()
        state.looking = state.stale & needed
        random_slots = random_slots | state.stale
        by_scores, at_random = self._widest(k, free)
        widest = torch.where(share > 0.5, at_random, by_scores)
        left = 1 - state.spent / self.forwards
        most = (widest * left**_SHRINK).clamp(min=1).floor()
        size = (chance[:, 3] * most).floor() + 1

        heat = self.temperature * state.spread
        score = torch.where(recolour[:, None], state.recolour_gain, state.return_gain)
        slots = draw_columns(score, heat[:, 1:], for_slots, wide, ~random_slots)
        old_sites, old_colours = state.sites.gather(1, slots), pick(state.colours, slots)
        for_colours = for_colours.reshape(-1, wide, bytes_)
        colours = corner_colours(for_colours, groups)
        best = pick(state.best_colours, slots)
        idle = (best == old_colours).all(dim=1) | random_sites[:, None]
        recoloured = torch.where(
            idle[:, None], other_colours(colours, old_colours, for_colours), best
        )
        failed = bits_of(state.tried, slots[:, 0])[:, :short] & (size == 1)[:, None]
        random_sites = random_sites | (failed.all(dim=1) & ~recolour)
        gains = state.free_gain.masked_fill(failed, -torch.inf)
        entries = draw_columns(gains, heat[:, :1], for_entries, wide, ~blind)
        anywhere = free_sites(state.sites, ranks(for_ranks, max(free, 1)))
        listed, dressed = (
            state.free_sites.gather(1, entries),
            pick(state.free_colours, entries),
        )
        swapped = torch.where(random_sites[:, None], anywhere, listed)
        dressed = torch.where(random_sites[:, None, None], colours, dressed)
        new_sites = torch.where(recolour[:, None], old_sites, swapped)
        new_colours = torch.where(recolour[:, None, None], recoloured, dressed)
        moves = (torch.arange(wide, device=slots.device) < size[:, None]) & ~state.looking[:, None]
        state.move_slots = slots
        state.move_sites = torch.where(moves, new_sites, old_sites)
        state.move_colours = torch.where(moves[:, None], new_colours, old_colours)
        state.move_entries, state.guided = entries, ~random_sites
