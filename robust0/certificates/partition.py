"""Disjoint views of an image: every pixel is seen by exactly one of them."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from robust0.errors import RecipeError
from robust0.rng import Stream


class Partition(Protocol):
    """A split of the pixels of an image into disjoint views.

    A changed pixel lies in one view, and a view is a function of its own pixels alone. So k changed
    pixels change at most k views. Every certificate over votes rests on this and nothing else.
    """

    kind: ClassVar[str]  # its name in checkpoints and certificates

    @property
    def views(self) -> int:
        """How many views there are."""
        ...

    def owner(self) -> Tensor:
        """(H * W,) int64: the view that each pixel belongs to, pixels in row-major order."""
        ...

    def split(self, images: Tensor) -> Tensor:
        """(B, C, H, W) images to (B, T, C + 1, h, w) views; the last channel marks real pixels."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StridedPartition:
    """Every ``stride``-th row and column: view (a, b) is the small dense picture x[a::s, b::s].

    Where the stride does not divide a side, some views are a row or a column short. They are padded
    with zeros at the end, and the presence channel is zero there.
    """

    kind: ClassVar[str] = "strided"
    height: int
    width: int
    stride: int

    def __post_init__(self) -> None:
        if not 1 <= self.stride <= min(self.height, self.width):
            raise RecipeError(
                f"A stride of {self.stride} leaves a view of a {self.height} x {self.width} "
                "image without pixels.",
                "Choose a stride from 1 to the shorter side.",
            )

    @property
    def views(self) -> int:
        """One for each pair of phases."""
        return self.stride**2

    def owner(self) -> Tensor:
        """The phases (a, b) of a pixel give view a * stride + b."""
        rows = torch.arange(self.height) % self.stride
        columns = torch.arange(self.width) % self.stride
        return (rows[:, None] * self.stride + columns).flatten()

    def split(self, images: Tensor) -> Tensor:
        """Views of ceil(H / s) x ceil(W / s) pixels."""
        _refuse_other_sizes(images, self.height, self.width)
        s = self.stride
        marked = hide(images, torch.ones_like(images[:1, :1], dtype=torch.bool))
        padded = pad(marked, (0, -self.width % s, 0, -self.height % s))
        batch, channels, height, width = padded.shape
        tiles = padded.reshape(batch, channels, height // s, s, width // s, s)
        return tiles.permute(0, 3, 5, 1, 2, 4).flatten(1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkingPartition:
    """Pixel i, in row-major order, belongs to view i mod T; the other pixels are hidden."""

    kind: ClassVar[str] = "walking"
    height: int
    width: int
    views: int

    def __post_init__(self) -> None:
        _refuse_empty_views(self.height * self.width, self.views)

    def owner(self) -> Tensor:
        """The row-major index modulo the number of views."""
        return torch.arange(self.height * self.width) % self.views

    def split(self, images: Tensor) -> Tensor:
        """Views of full size."""
        _refuse_other_sizes(images, self.height, self.width)
        return _masked(images, self.owner(), self.views)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomPartition:
    """A random split into views of equal size, up to one pixel; the same for every image."""

    kind: ClassVar[str] = "random"
    height: int
    width: int
    views: int
    seed: int = 0

    def __post_init__(self) -> None:
        _refuse_empty_views(self.height * self.width, self.views)

    def owner(self) -> Tensor:
        """Pixels dealt out to the views in a random order that the seed fixes."""
        pixels = self.height * self.width
        order = Stream.of(self.seed, "certify", "partition").permutation(pixels)
        owner = torch.empty(pixels, dtype=torch.int64)
        owner[order] = torch.arange(pixels) % self.views
        return owner

    def split(self, images: Tensor) -> Tensor:
        """Views of full size."""
        _refuse_other_sizes(images, self.height, self.width)
        return _masked(images, self.owner(), self.views)


def hide(images: Tensor, visible: Tensor) -> Tensor:
    """Put hidden pixels at zero and append visibility as a channel.

    Args:
        images: (..., C, H, W).
        visible: (..., 1, H, W) bool, broadcast against the images.
    """
    # SAFETY: chosen, not multiplied. A hidden pixel must leave no trace, not even as nan or -0.
    shown = torch.where(visible, images, images.new_zeros(()))
    return torch.cat([shown, visible.to(images.dtype).expand_as(shown[..., :1, :, :])], dim=-3)


def _masked(images: Tensor, owner: Tensor, views: int) -> Tensor:
    mine = owner == torch.arange(views)[:, None]
    visible = mine.reshape(views, 1, *images.shape[2:]).to(images.device)
    return hide(images[:, None], visible)


def _refuse_empty_views(pixels: int, views: int) -> None:
    if not 1 <= views <= pixels:
        raise RecipeError(
            f"{pixels} pixels cannot be split into {views} views.",
            "Choose from one view to as many as there are pixels.",
        )


def _refuse_other_sizes(images: Tensor, height: int, width: int) -> None:
    if images.shape[2:] != (height, width):
        shape = " x ".join(str(side) for side in images.shape[2:])
        raise RecipeError(
            f"The partition is of {height} x {width} images, these are {shape}.",
            "Build the partition for the size of the images.",
        )
