"""Draws from random words, and packed bits, of which guided-swap makes its moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robust0.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

_EDGE = 2  # random sites must lower the margin so many times as much to be drawn as often
_POWER = 6  # and the better kind is drawn so much more often than it is better
_MOST, _GROWS = 0.9, 9  # the share of random sites at most, and as a multiple of its least
_PRIOR = 4  # trials that each kind is credited with, at the mean fall of both
_WINDOW = 0.98  # of a kind's record, kept at each of its trials


def gumbel(words: Tensor) -> Tensor:
    """Standard Gumbel draws from 32-bit words."""
    return (-(-((words + 0.5) * 2.0**-32).log()).log()).to(torch.float32)


def draw_columns(gains: Tensor, heat: Tensor, words: Tensor, size: int, guided: Tensor) -> Tensor:
    """(B, size) distinct columns, by gains under Gumbel noise, or uniform where not guided."""
    noise = gumbel(words)
    follows = guided[:, None] & (heat > 0)
    return torch.where(follows, gains / heat.clamp(min=1e-30) + noise, noise).topk(size).indices


def corner_colours(words: Tensor, groups: int) -> Tensor:
    """(B, g, n) zeros and ones from (B, n, ceil(g / 8)) words."""
    channel = torch.arange(groups, device=words.device)
    return ((words[:, :, channel // 8] >> (channel % 8)) & 1).transpose(1, 2).float()


def bits_of(packed: Tensor, rows: Tensor) -> Tensor:
    """(B, 8 n) bool from one of the rows (B,) of each (B, k, n) uint8."""
    each = torch.arange(8, dtype=torch.uint8, device=packed.device)
    taken = packed[torch.arange(len(rows), device=rows.device), rows]
    return ((taken[:, :, None] >> each) & 1).bool().flatten(1)


def other_colours(colours: Tensor, old: Tensor, words: Tensor) -> Tensor:
    """Drawn colours (B, g, n), one channel flipped where they are the old ones."""
    groups = colours.shape[1]
    channel = (words[:, None, :, 0] >> 8) % groups  # bits that the colours have not used
    flip = torch.arange(groups, device=words.device)[:, None] == channel
    same = (colours == old).all(dim=1, keepdim=True)
    return torch.where(same & flip, 1 - colours, colours)


def ranks(words: Tensor, free: int) -> Tensor:
    """(B, n) distinct ranks in [0, free) from (B, n + 1) words: one per stratum, all shifted."""
    size = words.shape[1] - 1
    low = torch.arange(size + 1, device=words.device) * free // size
    within = (words[:, :size] * (low[1:] - low[:-1])) >> 32
    return (low[:-1] + within + ((words[:, size:] * free) >> 32)) % free


def pick(values: Tensor, columns: Tensor) -> Tensor:
    """(B, g, n) the columns (B, n) of (B, g, N) values."""
    return values.gather(2, columns[:, None].expand(-1, values.shape[1], -1))


def put(values: Tensor, columns: Tensor, new: Tensor) -> Tensor:
    """(B, g, N) values with (B, g, n) new ones in the columns (B, n)."""
    return values.scatter(2, columns[:, None].expand_as(new), new)


def deviation(values: Tensor, counted: Tensor) -> Tensor:
    """(B,) standard deviation over the counted columns; exact enough not to depend on the batch."""
    weight = counted.double()
    number = weight.sum(dim=1).clamp(min=1)
    mean = (values * weight).sum(dim=1) / number
    return ((((values - mean[:, None]) ** 2) * weight).sum(dim=1) / number).sqrt().float()


def corner_gains(slope: Tensor, clean: Tensor) -> Tensor:
    """(B, S, 2**g) first-order gain of every corner of every site; bit c is value c."""
    groups = clean.shape[1]
    gain = -(slope * clean).sum(dim=1)[:, :, None]
    corner = torch.arange(1 << groups, device=clean.device)
    for value in range(groups):
        gain = gain + slope[:, value, :, None] * ((corner >> value) & 1)
    return gain


def is_idle(clean: Tensor) -> Tensor:
    """(B, S, 2**g) bool: the corner is what the site has already."""
    groups = clean.shape[1]
    corner = torch.arange(1 << groups, device=clean.device)
    same = torch.ones(1, dtype=torch.bool, device=clean.device)
    for value in range(groups):
        same = same & (clean[:, value, :, None] == ((corner >> value) & 1))
    return same


def fresh_record(clean: Tensor) -> Tensor:
    """(B, 2, 2) falls of the margin and trials of sites that the gradient chose and random ones."""
    return clean.new_zeros(len(clean), 2, 2)


def recorded(record: Tensor, blind: Tensor, counts: Tensor, fall: Tensor) -> Tensor:
    """The record after one more move of each row, of those that count."""
    arms = torch.stack([~blind, blind], dim=1) & counts[:, None]
    told = torch.stack([arms * fall.clamp(min=0).float()[:, None], arms.float()], dim=2)
    return record * torch.where(arms, _WINDOW, 1.0)[:, :, None] + told


def blind_share(record: Tensor, least: float) -> Tensor:
    """(B,) the share of the next moves that should draw their sites at random."""
    falls, trials = record.unbind(dim=2)
    mean = falls.sum(dim=1) / trials.sum(dim=1).clamp(min=1)
    guided, blind = ((falls + _PRIOR * mean[:, None]) / (trials + _PRIOR)).unbind(dim=1)
    odds = (blind / (_EDGE * guided).clamp(min=1e-30)) ** _POWER
    share = 1 - 1 / (1 + odds)
    return torch.where(mean > 0, share, least).clamp(least, min(_GROWS * least, max(_MOST, least)))
