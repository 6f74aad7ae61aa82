"""One or two sites: guided-swap lists their corners in the order of what they should gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from robust0.attacks.base import Reply, Rows, State, begin
from robust0.attacks.moves import corner_gains, is_idle
from robust0.attacks.sparse_rs import paint
from robust0.lazy import torch
from robust0.losses import margin

if TYPE_CHECKING:
    from torch import Tensor

_LISTED = 1 << 19  # changes of one site that a row may have to rank
_KEPT = 0.7  # of what trials taught about a site, at each later look
_TRUST = 0.5  # share of a first-order gain that is believed before any trial
_LEAST_TRUST = 0.1
_TO_SITE = 0.7  # how much of an error corrects what a site is worth,
_TO_SLOT = 0.3  # and, with two slots, the margin without the slot's change


@dataclass(slots=True, kw_only=True)
class CornerScan(State):
    """An incumbent of one or two changes and the scans of what each of them might be instead.

    A change is a pair, as in sparse-rs: a site above the bits of its corner. The scan of a slot
    holds the other slot fixed and tries changes in the order of the margin they should leave; no
    image is tried twice. When nothing is left to try around an incumbent, another one is begun.
    """

    pairs: Tensor  # (B, k)
    margin: Tensor  # (B,) of the incumbent
    slope: Tensor  # (B, g, S) fall of the margin per value, at the last look
    without: Tensor  # (B, k) the margin expected with this slot given back
    surprise: Tensor  # (B, S) what trials found painting a site to gain beyond its share
    fit: Tensor  # (B, 2) sums of predicted x real falls and of predicted squares
    slot: Tensor  # (B,) of the change under trial
    pair: Tensor  # (B,) the change under trial
    expected: Tensor  # (B,) the margin it should leave
    predicted: Tensor  # (B,) its first-order gain
    asked: Tensor  # (B, F, k) int32 pairs tried, by the passes spent before
    looking: Tensor  # (B,) bool: the next query is a look
    exhausted: Tensor  # (B,) bool: nothing is left to try
    spent: Tensor  # (B,) forward-equivalents

    @classmethod
    def can_list(cls, rows: Rows) -> bool:
        """Whether so few sites change, in so few ways, that they can be ranked."""
        _, groups, count = rows.threat.view(rows.images[:1]).shape
        return rows.k <= 2 and count << groups <= _LISTED

    @classmethod
    def of(cls, rows: Rows, forwards: int) -> Self:
        """Nothing painted: the first query is a look at the clean image."""
        clean = rows.threat.view(rows.images)
        count, groups, _ = clean.shape
        k, zero = rows.k, torch.zeros_like(rows.ids)
        number = torch.zeros_like(clean[:, 0, 0])
        return cls(
            **begin(rows),
            pairs=torch.arange(k, device=clean.device).repeat(count, 1) << groups,
            margin=torch.full_like(number, torch.inf),
            slope=torch.zeros_like(clean),
            without=number[:, None].repeat(1, k),
            surprise=torch.zeros_like(clean[:, 0]),
            fit=number[:, None].repeat(1, 2),
            slot=zero.clone(),
            pair=zero.clone(),
            expected=number.clone(),
            predicted=number.clone(),
            asked=torch.full((count, forwards, k), -1, dtype=torch.int32, device=clean.device),
            looking=torch.ones_like(rows.ids, dtype=torch.bool),
            exhausted=torch.zeros_like(rows.ids, dtype=torch.bool),
            spent=zero.clone(),
        )

    def trial(self) -> Tensor:
        """(B, k) the incumbent with the change under trial."""
        changed = self.pairs.scatter(1, self.slot[:, None], self.pair[:, None])
        return torch.where(self.looking[:, None], self.pairs, changed)

    def query(self) -> Tensor:
        """The images to ask about: at first the clean ones."""
        first = (self.step == 0)[:, None, None]
        return self.image(torch.where(first, self.clean, paint(self.clean, self.trial())))

    def learn(self, reply: Reply, forwards: int) -> Tensor:
        """Take a reply in and choose what to try next; (B,) which rows are done."""
        gap = margin(reply.logits, self.labels)
        if reply.gradient is None:
            self._tried(gap)
        else:
            self._looked(gap, reply.gradient)
        self.step = self.step + 1
        self._choose()
        return (self.spent + 1 + self.looking > forwards) | self.exhausted

    def _tried(self, gap: Tensor) -> None:
        """Correct the estimates by a trial; keep its change if it lowered the margin."""
        k = self.pairs.shape[1]
        trial, slot = self.trial(), self.slot[:, None]
        place = self.spent.clamp(max=self.asked.shape[1] - 1)[:, None, None].expand(-1, 1, k)
        self.asked = self.asked.scatter(1, place, trial[:, None].to(torch.int32))
        finite = gap.isfinite() & self.expected.isfinite()
        error = torch.where(finite, gap - self.expected, 0.0)
        fall = torch.where(finite, self.without.gather(1, slot)[:, 0] - gap, 0.0)
        site = self.pair[:, None] >> self.clean.shape[1]
        self.surprise = self.surprise.scatter_add(1, site, -_TO_SITE * error[:, None])
        sums = torch.stack([self.predicted * fall, self.predicted**2], dim=1)
        self.fit = self.fit + torch.where(finite[:, None], sums, 0.0)
        if k == 2:
            self.without = self.without.scatter_add(1, slot, _TO_SLOT * error[:, None])
        better = gap < self.margin
        self.pairs = torch.where(better[:, None], trial, self.pairs)
        self.margin = torch.where(better, gap, self.margin)
        self.looking = better & (k == 2)  # with one slot nothing around it has changed
        self.spent = self.spent + 1

    def _looked(self, gap: Tensor, slope: Tensor) -> None:
        """Estimate every change anew; rows at their first look begin with the strongest."""
        groups, k = self.clean.shape[1], self.pairs.shape[1]
        first = self.step == 0
        self.slope, self.surprise = slope, _KEPT * self.surprise
        gains = corner_gains(slope, self.clean)  # (B, S, 2**g)
        top = gains.amax(dim=2).topk(k, dim=1)
        corner = gains.argmax(dim=2).gather(1, top.indices)
        strongest = top.values[:, 0] ** 2
        start = torch.stack([_TRUST * strongest, strongest], dim=1)
        self.fit = torch.where(first[:, None], start, self.fit)
        if k == 2:
            self.pairs = torch.where(first[:, None], top.indices << groups | corner, self.pairs)
            seen = torch.where(gap.isfinite(), gap, torch.inf)
            self.margin = torch.where(first | self.margin.isfinite(), self.margin, seen)
            given = gains.flatten(1).gather(1, self.pairs)  # giving it back costs what it gained
            known = torch.where(self.margin.isfinite(), self.margin, gap.nan_to_num())
            self.without = known[:, None] + given * self._trust()[:, None]
        else:
            self.without = gap.nan_to_num()[:, None]
        self.looking = first & (k == 2)
        self.spent = self.spent + 2

    def _trust(self) -> Tensor:
        """(B,) how much of a first-order gain trials came to."""
        return (self.fit[:, 0] / self.fit[:, 1].clamp(min=1e-30)).clamp(_LEAST_TRUST, 1)

    def _choose(self) -> None:
        """The untried change that should leave the smallest margin."""
        gains = corner_gains(self.slope, self.clean)
        worth = (gains * self._trust()[:, None, None] + self.surprise[:, :, None]).flatten(1)
        idle = is_idle(self.clean).flatten(1)
        taken = self._taken() | idle[:, None]
        self.exhausted = taken.all(dim=2).all(dim=1)
        if self.pairs.shape[1] == 2 and self.exhausted.any():
            self._begin_anew(worth, idle)
            taken = self._taken() | idle[:, None]
        left = (self.without[:, :, None] - worth[:, None]).masked_fill(taken, torch.inf)
        lowest = left.flatten(1).min(dim=1)
        every = worth.shape[1]
        self.slot, self.pair = lowest.indices // every, lowest.indices % every
        self.expected = lowest.values
        self.predicted = gains.flatten(1).gather(1, self.pair[:, None])[:, 0]

    def _begin_anew(self, worth: Tensor, idle: Tensor) -> None:
        """Exhausted rows go on around the best change that was not tried with all others."""
        groups, asked = self.clean.shape[1], self.asked.flatten(1).to(torch.int64)
        tried = torch.zeros_like(worth, dtype=torch.int64)
        tried = tried.scatter_add(1, asked.clamp(min=0), (asked >= 0).long())
        real = (~idle).unflatten(1, (-1, 1 << groups)).sum(dim=2)
        partners = (real.sum(dim=1, keepdim=True) - real).repeat_interleave(1 << groups, dim=1)
        open_ = ~idle & (tried < partners)
        best = worth.masked_fill(~open_, -torch.inf).argmax(dim=1)
        anew = self.exhausted & open_.any(dim=1)
        self.exhausted = self.exhausted & ~anew
        first = torch.where(anew, best, self.pairs[:, 0])
        self.pairs = torch.stack([first, self.pairs[:, 1]], dim=1)
        self.margin = torch.where(anew, torch.inf, self.margin)

    def _taken(self) -> Tensor:
        """(B, k, P) bool: changes that were tried in this slot, or are at the other one's site."""
        (rows, groups, sites), k = self.clean.shape, self.pairs.shape[1]
        every, asked, pairs = sites << groups, self.asked.to(torch.int64), self.pairs
        taken = torch.zeros(rows, k, every + 1, dtype=torch.bool, device=pairs.device)
        nothing = torch.tensor(every, device=pairs.device)
        if k == 1:
            tried = torch.where(asked[:, :, 0] >= 0, asked[:, :, 0], nothing)
            taken[:, 0].scatter_(1, tried, value=True)
            return taken[:, :, :-1]
        for slot in range(2):
            other = pairs[:, 1 - slot, None]
            for column in range(2):
                tried = torch.where(asked[:, :, 1 - column] == other, asked[:, :, column], nothing)
                taken[:, slot].scatter_(1, tried, value=True)
            same = (other >> groups << groups) + torch.arange(1 << groups, device=pairs.device)
            taken[:, slot].scatter_(1, same, value=True)
        return taken[:, :, :-1]
