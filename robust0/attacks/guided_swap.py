"""Guided swap: local search over painted sites, its moves proposed by the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from robust0.attacks.base import Attack, Configured, Efforts, Reply, Rows, begin
from robust0.attacks.moves import bits_of, corner_colours, gumbel, other_colours, pick, put, ranks
from robust0.attacks.swaps import (
    GuidedSwapState,
    blind_share,
    exchange,
    keep_record,
    learn,
    look,
)
from robust0.lazy import torch
from robust0.losses import margin
from robust0.registry import setting
from robust0.threats.sparse import free_sites

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.threats import Threat

_SHORTEST = 256  # shortlisted sites, or four times the budget if that is more
_SHRINK = 1  # moves shrink with this power of the budget left
_FEW = 2  # sites up to which all corners of promising sites are tried
_VALUES = 4  # the most that a site may have for that
_PAIR = 2  # sites that the widest move swaps at least, beyond those few
_LEAST = 0.05  # share of either sort of moves, so that its record is never forgotten
_BELIEF = 5.0  # trials that the first record counts for
_RATE = 0.02  # part of the margin that a trial is expected to gain at first


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedSwap(Attack[GuidedSwapState]):
    """Swap painted sites for others the gradient recommends; keep a swap if it lowers the margin.

    robust0's own attack. A *look* is one gradient of the margin at the incumbent; it scores every
    free site painted with its best corner, every used site given back and every used site
    recoloured. Moves are drawn by these scores under Gumbel noise and tried with one forward each,
    until one lowers the margin; then the attack looks again. Every trial corrects the scores of the
    sites it moved by what the margin really did. A share of the moves ignores the scores: it
    follows what guided and blind moves of late have gained in this image, so that a gradient that
    misleads is soon disbelieved; the larger it is, the more moves are kept before the next look.
    No single swap is tried twice at the same incumbent; where all that the shortlist offers a slot
    have failed, sites are drawn from the whole image. At one or two sites of few values the
    shortlist has every corner of its sites, and moves are made in the order of their scores.

    It starts from the k sites of the largest first-order gain at the clean image. Every image asked
    about differs from the clean one in at most k sites, each of a corner colour. Where k covers the
    image used sites are recoloured.
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
    configured: ClassVar[tuple[Configured, ...]] = (Configured("guided-swap", rank=1),)

    forwards: Annotated[int, Ge(4)] = setting(400, "forward-equivalents per image")
    temperature: Annotated[float, Gt(0)] = setting(
        0.3, "noise on the scores of moves, in their standard deviations"
    )
    explore: Annotated[float, Ge(0), Le(1)] = setting(
        0.1, "share of the moves that ignore the scores at first; then it follows what they gain"
    )
    recolour: Annotated[float, Ge(0), Le(1)] = setting(0.1, "share of the moves that only recolour")
    widest: Annotated[float, Gt(0), Le(1)] = setting(0.2, "largest move, as a share of the budget")

    def passes(self, threat: Threat, image_shape: tuple[int, int, int], classes: int) -> int:  # noqa: ARG002
        """A look costs two forward-equivalents, a trial one."""
        return self.forwards

    def start(self, rows: Rows) -> GuidedSwapState:
        """Nothing painted: the first look is at the clean image and chooses the sites."""
        clean = rows.threat.view(rows.images)
        count, groups, all_sites = clean.shape
        k = rows.k
        free = all_sites - k
        wide = min(max(int(self.widest * k), 1 if k <= _FEW else _PAIR), free or k)
        short = max(wide, min(free, max(_SHORTEST, 4 * k)))
        if _corners(k, groups, all_sites) > 1:
            wide, short = 1, min(all_sites, _SHORTEST) << groups

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
            record=torch.tensor(_prior(self.explore), device=clean.device).repeat(count, 1, 1),
            kept=torch.zeros_like(rows.ids),
            looking=torch.ones_like(rows.ids, dtype=torch.bool),
            spent=torch.zeros_like(rows.ids),
        )

    def wants_gradient(self, state: GuidedSwapState) -> Tensor:
        """The rows whose incumbent is new."""
        return state.looking.clone()

    def ask(self, state: GuidedSwapState) -> Tensor:
        """The incumbent after the move under trial; a look's move changes nothing."""
        sites = state.sites.scatter(1, state.move_slots, state.move_sites)
        colours = put(state.colours, state.move_slots, state.move_colours)
        return state.image(put(state.clean, sites, colours))

    def objective(self, state: GuidedSwapState, logits: Tensor) -> Tensor:
        """The negative margin."""
        return -margin(logits, state.labels)

    def tell(self, state: GuidedSwapState, reply: Reply) -> Tensor:
        """Learn from a look, or keep a trial that lowered the margin; then draw the next move."""
        gap = margin(reply.logits, state.labels)
        state.step = state.step + 1
        k, (groups, count) = state.sites.shape[1], state.clean.shape[1:]
        corners = _corners(k, groups, count)
        if reply.gradient is None:
            fall = torch.where(gap.isfinite(), state.margin - gap, 0.0)
            learn(state, fall, every=corners > 1)
            better = gap < state.margin
            keep_record(state, fall)
            exchange(state, better)
            state.margin = torch.where(better, gap, state.margin)
            share = self._share(state)
            due = state.kept * (1 - share) >= share
            state.looking = better & (due if corners == 1 else state.kept > 0)
            state.spent = state.spent + 1
        else:
            first = state.step == 1
            look(state, reply.gradient, first, corners)
            # What the first look chose has not been seen yet; later ones have, as trials, and are
            # compared with trials: a call with a gradient may round differently.
            known = first | state.margin.isfinite()
            state.margin = torch.where(known, state.margin, gap)
            state.looking = first
            state.spent = state.spent + 2
        self._propose(state)
        return state.spent + 1 + state.looking > self.forwards

    def _propose(self, state: GuidedSwapState) -> None:
        """Draw the next move; a row about to look gets one that changes nothing."""
        (_, groups, count), k = state.clean.shape, state.sites.shape[1]
        wide, short, free = state.move_slots.shape[1], state.free_sites.shape[1], count - k
        every = _corners(k, groups, count) > 1
        bytes_ = -(-groups // 8)
        # One call for all draws: its cost hardly depends on how many words it makes.
        lengths = (4, k, 0 if every else short, wide + 1, wide * bytes_)
        words = state.stream.words(state.ids, state.step, sum(lengths))
        dice, for_slots, for_entries, for_ranks, for_colours = words.split(lengths, dim=1)
        chance = (dice >> 8) * 2.0**-24  # exact in float32, so never 1
        blind = (state.spread == 0).all(dim=1)
        share = self._share(state)
        recolour = chance[:, 0] < (0.0 if every else max(self.recolour, k / count))
        random_slots = (chance[:, 1] < share) | blind
        random_sites = (chance[:, 2] < share) | blind
        left = 1 - state.spent / self.forwards
        most = (wide * left**_SHRINK).clamp(min=1).floor()
        size = (chance[:, 3] * most).floor() + 1

        score = torch.where(recolour[:, None], state.recolour_gain, state.return_gain)
        slots = self._draw(score, state.spread[:, 1:], for_slots, wide, ~random_slots)
        old_sites, old_colours = state.sites.gather(1, slots), pick(state.colours, slots)
        for_colours = for_colours.reshape(-1, wide, bytes_)
        colours = corner_colours(for_colours, groups)
        best = pick(state.best_colours, slots)
        idle = (best == old_colours).all(dim=1) | random_sites[:, None]
        recoloured = torch.where(
            idle[:, None], other_colours(colours, old_colours, for_colours), best
        )
        failed = bits_of(state.tried, slots[:, 0])[:, :short] & (size == 1)[:, None]
        if every:
            failed = failed | self._taken(state, slots)
        random_sites = random_sites | (failed.all(dim=1) & ~recolour)
        gains = state.free_gain.masked_fill(failed, -torch.inf)
        if every:
            entries = gains.argmax(dim=1, keepdim=True)
        else:
            entries = self._draw(gains, state.spread[:, :1], for_entries, wide, ~blind)
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

    def _share(self, state: GuidedSwapState) -> Tensor:
        """(B,) of the moves that ignore the scores."""
        least = min(self.explore, _LEAST)
        return blind_share(state.record).clamp(least, max(self.explore, 1 - _LEAST))

    @staticmethod
    def _taken(state: GuidedSwapState, slots: Tensor) -> Tensor:
        """(B, L) entries that a slot cannot have: of another slot's site, or what it has."""
        own = state.free_sites == state.sites.gather(1, slots)
        used = (state.free_sites[:, :, None] == state.sites[:, None]).any(dim=2)
        same = (state.free_colours == pick(state.colours, slots)).all(dim=1)
        return torch.where(own, same, used)

    def _draw(
        self, gains: Tensor, spread: Tensor, words: Tensor, size: int, guided: Tensor
    ) -> Tensor:
        """(B, size) distinct columns, by gains under Gumbel noise, or uniform where not guided."""
        noise = gumbel(words)
        scale = (self.temperature * spread).clamp(min=1e-30)
        guided = guided[:, None] & (spread > 0)
        return torch.where(guided, gains / scale + noise, noise).topk(size, dim=1).indices


def _corners(budget: int, groups: int, sites: int) -> int:
    """How many corners of a site are on the list: all at few sites of few values, else the best."""
    if budget > _FEW or budget == sites or groups > _VALUES:
        return 1
    return 1 << groups


def _prior(share: float) -> list[list[float]]:
    """The record of moves that makes this the share of blind ones."""
    # The share goes with the fourth power of what a trial gains.
    won = [_RATE * _BELIEF * part**0.25 for part in (1 - share, share)]
    return [[number, _BELIEF] for number in won]
