"""What guided-swap knows of a row: the incumbent, the scores of moves, and how they are learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robust0.attacks.base import State
from robust0.attacks.moves import all_corners, deviation, pick, put
from robust0.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

_MEMORY = 0.7  # of what trials taught about a site, kept at each look
_FADING = 0.98  # of how often moves were right, kept at each trial


@dataclass(slots=True, kw_only=True)
class GuidedSwapState(State):
    """The incumbent, the move under trial and what the last look at the incumbent told.

    The incumbent is a list of exactly k sites and their colours; a move puts a site and a colour
    into some of its slots. Gains are first-order falls of the margin.
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
    free_gain: Tensor  # (B, L) of painting one with the colour beside it
    free_colours: Tensor  # (B, g, L)
    surprise: Tensor  # (B, S) what trials found painting a site to gain beyond first order
    tried: Tensor  # (B, k, L / 8) bits: this entry alone in this slot, since the last look
    spread: Tensor  # (B, 2) standard deviation of the gains of painting and of giving back
    record: Tensor  # (B, 2, 2) guided and blind swaps of late: what they gained, their number
    kept: Tensor  # (B,) moves since the last look
    looking: Tensor  # (B,) bool: the next query is a look at the incumbent
    spent: Tensor  # (B,) forward-equivalents


def blind_share(record: Tensor) -> Tensor:
    """(B,) the share of moves that ignore the gradient: by what a trial of either sort gained."""
    # Squares are rounded alike wherever in a tensor a row is; powers are not.
    rate = (record[:, :, 0] / record[:, :, 1]).square().square()
    return rate[:, 1] / rate.sum(dim=1)


def learn(state: GuidedSwapState, fall: Tensor, *, every: bool) -> None:
    """Correct the gains of the sites in a trial until their sum is what the margin did.

    ``every`` corner is on the list, also those of the sites in use.
    """
    slots, entries = state.move_slots, state.move_entries
    old_sites, old_colours = state.sites.gather(1, slots), pick(state.colours, slots)
    swapped = state.move_sites != old_sites
    dressed = ~swapped & (state.move_colours == pick(state.best_colours, slots)).all(dim=1)
    dressed = dressed & (state.move_colours != old_colours).any(dim=1)
    listed = swapped & state.guided[:, None]
    terms = torch.stack([swapped, swapped, dressed])
    # A site that was not on the list is expected to gain what it is known for, else nothing.
    known = state.surprise.gather(1, state.move_sites)
    gains = torch.stack(
        [
            state.return_gain.gather(1, slots),
            torch.where(listed, state.free_gain.gather(1, entries), known),
            state.recolour_gain.gather(1, slots),
        ]
    )
    missing = fall - gains.double().where(terms, 0).sum(dim=(0, 2))
    share = (missing / terms.sum(dim=(0, 2)).clamp(min=1)).float()
    returned, added, recoloured = share[:, None] * terms
    state.return_gain = state.return_gain.scatter_add(1, slots, returned)
    state.recolour_gain = state.recolour_gain.scatter_add(1, slots, recoloured)
    same = state.free_sites[:, :, None] == state.move_sites[:, None]
    state.free_gain = state.free_gain + (same * added[:, None]).sum(dim=2)
    # What a site is worth stays with it: giving it back costs what painting it gains.
    state.surprise = state.surprise.scatter_add(1, state.move_sites, added)
    state.surprise = state.surprise.scatter_add(1, old_sites, -returned)
    changed = swapped | (state.move_colours != old_colours).any(dim=1) if every else swapped
    alone = (changed.sum(dim=1) == 1) & changed[:, 0] & state.guided
    bits = state.tried.flatten(1)
    place = slots[:, :1] * state.tried.shape[2] + entries[:, :1] // 8
    new = (alone[:, None].to(torch.uint8) << entries[:, :1] % 8).to(torch.uint8)
    bits = bits.scatter(1, place, bits.gather(1, place) | new)
    state.tried = bits.view_as(state.tried)


def keep_record(state: GuidedSwapState, fall: Tensor) -> None:
    """Count the trial of a swap for its sort of moves, by the part of the margin it gained."""
    swapped = (state.move_sites != state.sites.gather(1, state.move_slots)).any(dim=1)
    sort = torch.stack([state.guided & swapped, ~state.guided & swapped], dim=1)
    part = (fall / state.margin.abs().clamp(min=1e-6)).clamp(0, 1)
    told = torch.stack([part, torch.ones_like(part)], dim=1)
    fade = torch.where(swapped, _FADING, 1.0)[:, None, None]
    state.record = fade * state.record + sort[:, :, None] * told[:, None, :]


def look(state: GuidedSwapState, slope: Tensor, first: Tensor, corners: int) -> None:
    """Score every way to change the incumbent; rows at their first look choose one.

    ``corners`` entries of the shortlist belong to each site: its best corner alone, or all.
    """
    k, short = state.sites.shape[1], state.free_sites.shape[1]
    paint = torch.maximum(slope * (1 - state.clean), -slope * state.clean).sum(dim=1)
    used = torch.zeros_like(paint, dtype=torch.bool).scatter_(1, state.sites, value=True)
    state.surprise = _MEMORY * state.surprise
    gain = paint + state.surprise
    if corners == 1:
        gain = gain.masked_fill(used & ~first[:, None], -torch.inf)
    listed = short // corners
    top = gain.topk(max(k, listed), dim=1)
    best = (pick(slope, top.indices) > 0).to(slope.dtype)
    state.sites = torch.where(first[:, None], top.indices[:, :k], state.sites)
    state.colours = torch.where(first[:, None, None], best[:, :, :k], state.colours)
    state.free_sites, state.free_gain = top.indices[:, :listed], top.values[:, :listed]
    state.free_colours = best[:, :, :listed]
    if corners > 1:
        _unfold(state, slope)
    here, clean = pick(slope, state.sites), pick(state.clean, state.sites)
    state.best_colours = (here > 0).to(slope.dtype)
    state.recolour_gain = (here * (state.best_colours - state.colours)).sum(dim=1)
    back = (here * (clean - state.colours)).sum(dim=1)
    state.return_gain = back - state.surprise.gather(1, state.sites)
    deviations = deviation(paint, ~used), deviation(back, torch.ones_like(state.sites))
    state.spread = torch.stack(deviations, dim=1)
    state.tried = torch.zeros_like(state.tried)
    state.kept = torch.zeros_like(state.kept)


def _unfold(state: GuidedSwapState, slope: Tensor) -> None:
    """Every corner of every listed site, scored by its own first-order gain."""
    groups = slope.shape[1]
    table = all_corners(groups, slope.device).to(slope.dtype)  # (g, C)
    here = pick(slope, state.free_sites)
    lost = here[..., None] * (state.free_colours[..., None] - table[:, None])
    state.free_gain = (state.free_gain[..., None] - lost.sum(dim=1)).flatten(1)
    state.free_sites = state.free_sites.repeat_interleave(table.shape[1], dim=1)
    colours = table[:, None].expand(-1, here.shape[2], -1).flatten(1)
    state.free_colours = colours.expand(len(slope), -1, -1).clone()


def exchange(state: GuidedSwapState, better: Tensor) -> None:
    """Make the kept moves; what leaves a slot takes the place on the list of what enters it."""
    slots, chosen = state.move_slots, better[:, None]
    old_sites, old_colours = state.sites.gather(1, slots), pick(state.colours, slots)
    swapped = (state.move_sites != old_sites) & chosen
    moved = swapped | ((state.move_colours != old_colours).any(dim=1) & chosen)
    place = (state.free_sites[:, :, None] == state.move_sites[:, None]) & swapped[:, None]
    hit, source = place.any(dim=2), place.to(torch.uint8).argmax(dim=2)
    cost = state.return_gain.gather(1, slots)
    worth = torch.where(
        state.guided[:, None],
        state.free_gain.gather(1, state.move_entries),
        state.surprise.gather(1, state.move_sites),
    )
    state.free_sites = torch.where(hit, old_sites.gather(1, source), state.free_sites)
    state.free_gain = torch.where(hit, -cost.gather(1, source), state.free_gain)
    state.free_colours = torch.where(hit[:, None], pick(old_colours, source), state.free_colours)
    state.return_gain = state.return_gain.scatter(1, slots, torch.where(swapped, -worth, cost))
    gain = state.recolour_gain.gather(1, slots)
    state.recolour_gain = state.recolour_gain.scatter(1, slots, gain.masked_fill(moved, 0))
    best = torch.where(moved[:, None], state.move_colours, pick(state.best_colours, slots))
    state.best_colours = put(state.best_colours, slots, best)
    state.sites = state.sites.scatter(1, slots, torch.where(chosen, state.move_sites, old_sites))
    colours = torch.where(chosen[:, None], state.move_colours, old_colours)
    state.colours = put(state.colours, slots, colours)
    state.tried = torch.where(better[:, None, None], 0, state.tried).to(torch.uint8)
    state.kept = state.kept + better.to(state.kept.dtype)
