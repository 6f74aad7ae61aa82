"""Draws from random words, and packed bits, of which guided-swap makes its moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robust0.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

# A success of sites drawn at random gains less than one of sites the gradient chose.
_WORTH = 0.45
_POWER = 4  # the better arm is taken more often than it is better
_PRIOR = 10  # trials that each arm is credited with,
_RATES = (0.2, 0.2567)  # so many of them successes: the share of the blind arm begins at 0.1
_MOST, _GROWS = 0.9, 9  # the blind arm's share at most, and as a multiple of its least
_WINDOW = 0.98  # of an arm's record, kept at each of its trials


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
    """(B, 2, 2) successes and trials of sites that the gradient chose and of random ones."""
    start = torch.tensor([[rate * _PRIOR, _PRIOR] for rate in _RATES], device=clean.device)
    return start.repeat(len(clean), 1, 1)


def recorded(record: Tensor, blind: Tensor, counts: Tensor, success: Tensor) -> Tensor:
    """The record after one more move of each row, of those that count."""
    arms = torch.stack([~blind, blind], dim=1) & counts[:, None]
    told = torch.stack([arms & success[:, None], arms], dim=2)
    return record * torch.where(arms, _WINDOW, 1.0)[:, :, None] + told


def blind_share(record: Tensor, least: float) -> Tensor:
    """(B,) the share of the next moves that should draw their sites at random."""
    rate = record[:, :, 0] / record[:, :, 1]
    guided, blind = rate[:, 0] ** _POWER, (_WORTH * rate[:, 1]) ** _POWER
    share = blind / (guided + blind).clamp(min=1e-30)
    return share.clamp(least, min(_GROWS * least, max(_MOST, least)))
