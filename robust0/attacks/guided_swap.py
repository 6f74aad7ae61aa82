"""Guided swap: local search over painted sites, its moves proposed by the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from robust0.attacks.base import Attack, AttackName, Efforts, Reply, Rows, State, begin
from robust0.attacks.corner_scan import CornerScan
from robust0.attacks.moves import (
    bits_of,
    blind_share,
    corner_colours,
    deviation,
    draw_columns,
    fresh_record,
    other_colours,
    pick,
    put,
    ranks,
    recorded,
)
from robust0.lazy import torch
from robust0.losses import margin
from robust0.registry import setting
from robust0.threats.sparse import free_sites

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.threats import Threat

_SHORTEST = 256  # shortlisted sites, or four times the budget if that is more
_MEMORY = 0.7  # of what trials taught about a site, kept at each look
_SHRINK = 1  # moves shrink with this power of the budget left
_WIDEST_BLIND = 0.5  # largest move, as a share of the budget, where random sites do better


@dataclass(slots=True, kw_only=True)
class GuidedSwapState(State):
    """The incumbent, the move under trial and what the last look at the incumbent told.

    A move puts sites and colours into slots of the incumbent. Gains are falls of the margin.
    """

    sites: Tensor  # (B, k) distinct
    colours: Tensor  # (B, g, k)
    margin: Tensor  # (B,) of the incumbent
    move_slots: Tensor  # (B, Q) distinct
    move_sites: Tensor  # (B, Q)
    move_colours: Tensor  # (B, g, Q)
    move_entries: Tensor  # (B, Q) where in the shortlist its sites come from
    guided: Tensor  # (B,) bool: they do come from there
    return_gain: Tensor  # (B, k) of giving back a used site
    recolour_gain: Tensor  # (B, k) of giving a used site its best corner
    best_colours: Tensor  # (B, g, k)
    free_sites: Tensor  # (B, L) the most promising free sites
    free_gain: Tensor  # (B, L) of painting one with its best corner
    free_colours: Tensor  # (B, g, L)
    surprise: Tensor  # (B, S) what trials found painting a site to gain beyond first order
    tried: Tensor  # (B, k, L / 8) bits: this entry alone in this slot, since the last look
    spread: Tensor  # (B, 2) standard deviation of the gains of painting and of giving back
    record: Tensor  # (B, 2, 2) of sites drawn by scores and at random: falls, trials
    stale: Tensor  # (B,) bool: the last look was at an earlier incumbent
    looking: Tensor  # (B,) bool: the next query is a look at the incumbent
    spent: Tensor  # (B,) forward-equivalents


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
            self._learn(state, fall)
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
            self._look(state, reply.gradient, first)
            # Later looks have been seen, as trials, and a call with a gradient may round otherwise.
            known = first | state.margin.isfinite()
            state.margin = torch.where(known, state.margin, gap)
            state.stale = first
            state.spent = state.spent + 2
        self._propose(state)
        return state.spent + 1 + state.looking > self.forwards

    def _learn(self, state: GuidedSwapState, fall: Tensor) -> None:
        """Correct the gains of the sites in a trial until their sum is what the margin did.

        Gains at an earlier incumbent are left as they are.
        """
        slots, entries = state.move_slots, state.move_entries
        old_sites, old_colours = state.sites.gather(1, slots), pick(state.colours, slots)
        swapped = state.move_sites != old_sites
        dressed = ~swapped & (state.move_colours == pick(state.best_colours, slots)).all(dim=1)
        dressed = dressed & (state.move_colours != old_colours).any(dim=1)
        painted = swapped & state.guided[:, None]
        terms = torch.stack([swapped, painted, dressed]) & ~state.stale[:, None]
        gains = torch.stack(
            [
                state.return_gain.gather(1, slots),
                state.free_gain.gather(1, entries),
                state.recolour_gain.gather(1, slots),
            ]
        )
        missing = fall - gains.double().where(terms, 0).sum(dim=(0, 2))
        share = (missing / terms.sum(dim=(0, 2)).clamp(min=1)).float()
        returned, added, recoloured = share[:, None] * terms
        state.return_gain = state.return_gain.scatter_add(1, slots, returned)
        state.recolour_gain = state.recolour_gain.scatter_add(1, slots, recoloured)
        state.free_gain = state.free_gain.scatter_add(1, entries, added)
        # What a site is worth stays with it: giving it back costs what painting it gains.
        state.surprise = state.surprise.scatter_add(1, state.move_sites, added)
        state.surprise = state.surprise.scatter_add(1, old_sites, -returned)
        alone = (swapped.sum(dim=1) == 1) & painted[:, 0] & ~state.stale
        bits = state.tried.flatten(1)
        place = slots[:, :1] * state.tried.shape[2] + entries[:, :1] // 8
        new = (alone[:, None].to(torch.uint8) << entries[:, :1] % 8).to(torch.uint8)
        bits = bits.scatter(1, place, bits.gather(1, place) | new)
        state.tried = bits.view_as(state.tried)

    def _look(self, state: GuidedSwapState, slope: Tensor, first: Tensor) -> None:
        """Score every way to change the incumbent; rows at their first look choose one."""
        k, short = state.sites.shape[1], state.free_sites.shape[1]
        paint = torch.maximum(slope * (1 - state.clean), -slope * state.clean).sum(dim=1)
        used = torch.zeros_like(paint, dtype=torch.bool).scatter_(1, state.sites, value=True)
        state.surprise = _MEMORY * state.surprise
        gain = (paint + state.surprise).masked_fill(used & ~first[:, None], -torch.inf)
        top = gain.topk(max(k, short), dim=1)
        corner = (pick(slope, top.indices) > 0).to(slope.dtype)
        state.free_sites = top.indices[:, :short]
        state.free_gain = top.values[:, :short]
        state.free_colours = corner[:, :, :short]
        state.sites = torch.where(first[:, None], top.indices[:, :k], state.sites)
        state.colours = torch.where(first[:, None, None], corner[:, :, :k], state.colours)
        here, clean = pick(slope, state.sites), pick(state.clean, state.sites)
        state.best_colours = (here > 0).to(slope.dtype)
        state.recolour_gain = (here * (state.best_colours - state.colours)).sum(dim=1)
        back = (here * (clean - state.colours)).sum(dim=1)
        state.return_gain = back - state.surprise.gather(1, state.sites)
        deviations = deviation(paint, ~used), deviation(back, torch.ones_like(state.sites))
        state.spread = torch.stack(deviations, dim=1)
        state.tried = torch.zeros_like(state.tried)

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
