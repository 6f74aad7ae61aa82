"""What guided-swap knows of an image: its incumbent, and what changing it should gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robust0.attacks.base import State
from robust0.attacks.moves import deviation, pick
from robust0.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

_MEMORY = 0.7  # of what trials taught about a site, kept at each look


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

    def learn(self, fall: Tensor) -> None:
        """Correct the gains of the sites in a trial until their sum is what the margin did.

        Gains at an earlier incumbent are left as they are.
        """
        slots, entries = self.move_slots, self.move_entries
        old_sites, old_colours = self.sites.gather(1, slots), pick(self.colours, slots)
        swapped = self.move_sites != old_sites
        dressed = ~swapped & (self.move_colours == pick(self.best_colours, slots)).all(dim=1)
        dressed = dressed & (self.move_colours != old_colours).any(dim=1)
        painted = swapped & self.guided[:, None]
        terms = torch.stack([swapped, painted, dressed]) & ~self.stale[:, None]
        gains = torch.stack(
            [
                self.return_gain.gather(1, slots),
                self.free_gain.gather(1, entries),
                self.recolour_gain.gather(1, slots),
            ]
        )
        missing = fall - gains.double().where(terms, 0).sum(dim=(0, 2))
        share = (missing / terms.sum(dim=(0, 2)).clamp(min=1)).float()
        returned, added, recoloured = share[:, None] * terms
        self.return_gain = self.return_gain.scatter_add(1, slots, returned)
        self.recolour_gain = self.recolour_gain.scatter_add(1, slots, recoloured)
        self.free_gain = self.free_gain.scatter_add(1, entries, added)
        # What a site is worth stays with it: giving it back costs what painting it gains.
        self.surprise = self.surprise.scatter_add(1, self.move_sites, added)
        self.surprise = self.surprise.scatter_add(1, old_sites, -returned)
        alone = (swapped.sum(dim=1) == 1) & painted[:, 0] & ~self.stale
        bits = self.tried.flatten(1)
        place = slots[:, :1] * self.tried.shape[2] + entries[:, :1] // 8
        new = (alone[:, None].to(torch.uint8) << entries[:, :1] % 8).to(torch.uint8)
        bits = bits.scatter(1, place, bits.gather(1, place) | new)
        self.tried = bits.view_as(self.tried)

    def look(self, slope: Tensor, first: Tensor) -> None:
        """Score every way to change the incumbent; rows at their first look choose one."""
        k, short = self.sites.shape[1], self.free_sites.shape[1]
        paint = torch.maximum(slope * (1 - self.clean), -slope * self.clean).sum(dim=1)
        used = torch.zeros_like(paint, dtype=torch.bool).scatter_(1, self.sites, value=True)
        self.surprise = _MEMORY * self.surprise
        gain = (paint + self.surprise).masked_fill(used & ~first[:, None], -torch.inf)
        top = gain.topk(max(k, short), dim=1)
        corner = (pick(slope, top.indices) > 0).to(slope.dtype)
        self.free_sites = top.indices[:, :short]
        self.free_gain = top.values[:, :short]
        self.free_colours = corner[:, :, :short]
        self.sites = torch.where(first[:, None], top.indices[:, :k], self.sites)
        self.colours = torch.where(first[:, None, None], corner[:, :, :k], self.colours)
        here, clean = pick(slope, self.sites), pick(self.clean, self.sites)
        self.best_colours = (here > 0).to(slope.dtype)
        self.recolour_gain = (here * (self.best_colours - self.colours)).sum(dim=1)
        back = (here * (clean - self.colours)).sum(dim=1)
        self.return_gain = back - self.surprise.gather(1, self.sites)
        deviations = deviation(paint, ~used), deviation(back, torch.ones_like(self.sites))
        self.spread = torch.stack(deviations, dim=1)
        self.tried = torch.zeros_like(self.tried)
