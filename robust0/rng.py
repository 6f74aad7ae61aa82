"""Stateless randomness: every draw is a pure function of a key, an image id and a step.

The generator is Philox4x32-10 [Salmon11] written in int64 tensor operations, so the same bits come
out on any device, in any batch, in any order. Nothing here reads or moves torch's global generator.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from robust0.lazy import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox4x32-10: four 32-bit words (in int64 tensors, broadcastable) from a 128-bit counter."""
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    # Half as many operations on twice the numbers: what counts is how many there are.
    even, odd = torch.stack([c0, c2]), torch.stack([c1, c3])
    factors, keys = _constants(key, c0.ndim, c0.device)
    for round_key in keys:
        # The product of two 32-bit words wraps as a signed int64, but its 64 bits are right.
        product = (even * factors).flip(0)
        even = (product >> 32).bitwise_and_(_WORD).bitwise_xor_(odd).bitwise_xor_(round_key)
        odd = product.bitwise_and_(_WORD)
    return even[0], odd[0], even[1], odd[1]


@lru_cache(maxsize=64)
def _constants(
    key: tuple[int, int], dimensions: int, device: torch.device
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The multipliers, and the keys of all rounds."""
    keys = [[(k + i * w) & _WORD for k, w in zip(key, _WEYL, strict=True)] for i in range(_ROUNDS)]
    both = torch.tensor([_MULTIPLIERS, *keys], device=device)
    factors, *shaped = both.reshape(-1, 2, *[1] * dimensions)
    return factors, tuple(shaped)


def derive(*parts: object) -> tuple[int, int]:
    """A 64-bit Philox key from any printable parts (seed, attack name, budget, ...)."""
    text = "\x1f".join(str(part) for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


@dataclass(frozen=True, slots=True)
class Stream:
    """A named source of draws for rows: each row is addressed by (image id, step, lane).

    ``lane`` separates the draws a row makes within one step; two calls with equal arguments return
    equal tensors. Ids and steps are (B,) int64 tensors; results are on their device.
    """

    key: tuple[int, int]

    @classmethod
    def of(cls, *parts: object) -> Stream:
        """The stream named by these parts."""
        return cls(derive(*parts))

    def words(self, ids: Tensor, steps: Tensor, count: int, lane: int = 0) -> Tensor:
        """(B, count) int64 tensor of independent uniform 32-bit words."""
        blocks = torch.arange((count + 3) // 4, device=ids.device)
        # Counter: (block, lane and high id bits, step, low id bits); ids may use 48 bits.
        high = ((ids >> 32) & 0xFFFF) << 16
        counter = (
            blocks.expand(len(ids), -1),
            (high | lane)[:, None].expand(-1, len(blocks)),
            (steps & _WORD)[:, None].expand(-1, len(blocks)),
            (ids & _WORD)[:, None].expand(-1, len(blocks)),
        )
        return torch.stack(philox(counter, self.key), dim=2).flatten(1)[:, :count]

    def uniform(self, ids: Tensor, steps: Tensor, count: int, lane: int = 0) -> Tensor:
        """(B, count) float32 in [0, 1), with 24 random bits each."""
        return (self.words(ids, steps, count, lane) >> 8).to(torch.float32) * 2.0**-24

    def normal(self, ids: Tensor, steps: Tensor, count: int, lane: int = 0) -> Tensor:
        """(B, count) float32 standard normals (Box-Muller in float64, then rounded)."""
        pairs = (count + 1) // 2
        words = self.words(ids, steps, 2 * pairs, lane).to(torch.float64)
        radius = (-2.0 * ((words[:, :pairs] + 1.0) * 2.0**-32).log()).sqrt()
        angle = words[:, pairs:] * (2.0 * math.pi * 2.0**-32)
        both = torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)
        return both[:, :count].to(torch.float32)

    def integers(self, ids: Tensor, steps: Tensor, count: int, below: int, lane: int = 0) -> Tensor:
        """(B, count) int64 in [0, below); the bias is under ``below`` / 2**32."""
        return (self.words(ids, steps, count, lane) * below) >> 32

    def subset(self, ids: Tensor, steps: Tensor, size: int, of: int, lane: int = 0) -> Tensor:
        """(B, size) distinct positions in [0, of), uniform and in random order."""
        keys = self.words(ids, steps, of, lane)
        return keys.topk(size, dim=1).indices

    def permutation(self, count: int, step: int = 0, lane: int = 0) -> Tensor:
        """A random order of range(count) on the CPU, for epochs and splits."""
        words = self.words(torch.zeros(1, dtype=torch.int64), torch.tensor([step]), count, lane)
        # Ties between 32-bit keys are broken by position: stable, so the same everywhere.
        return words[0].argsort(stable=True)


@contextmanager
def seeded(*parts: object) -> Iterator[None]:
    """Run library code that insists on torch's global generator (weight init, drop-path).

    The generator is seeded from ``parts`` inside and restored afterwards, on every device.
    """
    low, high = derive(*parts)
    with torch.random.fork_rng():
        torch.manual_seed((high << 32) | low)
        yield
