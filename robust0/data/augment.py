"""Training views of images: random crops and flips, drawn per image id and epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol

from annotated_types import Gt, Le

from robust0.lazy import torch
from robust0.registry import Registry, Whole, setting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from robust0.rng import Stream

    Images = Sequence[Tensor] | Tensor

_CROP_LANE, _FLIP_LANE, _BOX_LANE = 0, 1, 2
_BOX_TRIES = 10
_LOG_RATIO = math.log(4 / 3)


@dataclass(frozen=True, slots=True)
class ViewDraw:
    """What names the draws of a batch's views: the image ids (B,), the epoch, the stream."""

    ids: Tensor
    epoch: int
    stream: Stream


class Augmentation(Protocol):
    """How training images are varied."""

    kind: ClassVar[str]

    def views(
        self,
        images: Images,
        draw: ViewDraw,
        size: Sequence[int],
        whole: Callable[[Images], Tensor],
    ) -> Tensor:
        """(B, C, *size) views of images (C, H, W) of any sizes; ``whole`` makes plain ones."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Small images: padded with zeros, cropped back at a random place.

    ``flip`` mirrors every second image left to right: not for data whose classes have a handedness,
    such as road signs.
    """

    kind: ClassVar[str] = "shift"
    pad: Whole = setting(4, "pixels added on each side", "[Zhong24]")
    flip: bool = setting(True, "mirror half of the images", "[Zhong24]")

    def views(
        self,
        images: Images,
        draw: ViewDraw,
        size: Sequence[int],  # noqa: ARG002 - that of the whole images
        whole: Callable[[Images], Tensor],
    ) -> Tensor:
        """The whole images, moved."""
        at = (draw.ids, draw.epoch, draw.stream)
        return crop_flip(whole(images), *at, pad=self.pad, flip=self.flip)


@dataclass(frozen=True, slots=True)
class ResizedCrop:
    """Large images: a random part, resized."""

    kind: ClassVar[str] = "resized-crop"
    scale: Annotated[float, Gt(0), Le(1)] = setting(
        0.25, "smallest part, as a fraction of the area"
    )
    flip: bool = setting(True, "mirror half of the images")

    def views(
        self,
        images: Images,
        draw: ViewDraw,
        size: Sequence[int],
        whole: Callable[[Images], Tensor],  # noqa: ARG002 - parts come from the originals
    ) -> Tensor:
        """Random parts, scaled."""
        at = (draw.ids, draw.epoch, draw.stream)
        return crop_flip(resized_boxes(images, *at, self.scale, size), *at, pad=0, flip=self.flip)


AUGMENTATIONS: Registry[Augmentation] = Registry("augmentation", [Shift, ResizedCrop])


def crop_flip(
    images: Tensor, ids: Tensor, epoch: int, stream: Stream, *, pad: int, flip: bool
) -> Tensor:
    """Each image shifted by up to ``pad`` pixels over zeros and, if asked, mirrored by chance."""
    steps = torch.full_like(ids, epoch)
    if pad:
        height, width = images.shape[2:]
        shift = stream.integers(ids, steps, 2, 2 * pad + 1, lane=_CROP_LANE)
        padded = torch.nn.functional.pad(images, (pad, pad, pad, pad))
        windows = padded.unfold(2, height, 1).unfold(
            3, width, 1
        )  # (B, C, 2p+1, 2p+1, H, W), a view
        rows = torch.arange(len(images), device=images.device)
        images = windows[rows, :, shift[:, 0], shift[:, 1]]
    if flip:
        images = torch.where(flips(ids, epoch, stream)[:, None, None, None], images.flip(3), images)
    return images


def resized_boxes(
    images: Images, ids: Tensor, epoch: int, stream: Stream, min_area: float,
    size: Sequence[int],
) -> Tensor:  # fmt: skip
    """(B, C, *size) random boxes of images (C, H, W) of any sizes, scaled."""
    from torchvision.transforms.v2 import functional as resizing  # seconds to import

    sizes = torch.tensor([image.shape[1:] for image in images], device=ids.device)
    boxes = crop_boxes(sizes, ids, epoch, stream, min_area).tolist()
    return torch.stack(
        [
            resizing.resized_crop(image, *box, size=list(size), antialias=True)
            for image, box in zip(images, boxes, strict=True)
        ]
    )


def flips(ids: Tensor, epoch: int, stream: Stream) -> Tensor:
    """(B,) bool: which images are mirrored in this epoch."""
    return stream.integers(ids, torch.full_like(ids, epoch), 1, 2, lane=_FLIP_LANE)[:, 0] == 1


def crop_boxes(sizes: Tensor, ids: Tensor, epoch: int, stream: Stream, min_area: float) -> Tensor:
    """(B, 4) int64 boxes (top, left, height, width) inside images of ``sizes`` (B, 2) = (H, W).

    Distributed as torchvision's RandomResizedCrop: area uniform in [min_area, 1] of the image,
    aspect ratio log-uniform in [3/4, 4/3], the first of ten draws that fits; failing all, the
    largest centred box of an allowed ratio.
    """
    steps = torch.full_like(ids, epoch)
    draws = stream.uniform(ids, steps, _BOX_TRIES * 4, lane=_BOX_LANE).double()
    area, shape, down, right = draws.view(len(ids), _BOX_TRIES, 4).unbind(dim=2)
    high, wide = (side[:, None].double() for side in sizes.unbind(dim=1))
    area = high * wide * (min_area + (1 - min_area) * area)
    ratio = ((2 * shape - 1) * _LOG_RATIO).exp()
    widths, heights = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
    fits = (widths >= 1) & (widths <= wide) & (heights >= 1) & (heights <= high)
    tops = (down * (high - heights + 1)).floor()
    lefts = (right * (wide - widths + 1)).floor()
    drawn = torch.stack([tops, lefts, heights, widths], dim=2)
    first = fits.int().argmax(dim=1)
    chosen = drawn[torch.arange(len(ids), device=ids.device), first]
    return torch.where(fits.any(dim=1)[:, None], chosen, _centred(high[:, 0], wide[:, 0])).long()


def _centred(high: Tensor, wide: Tensor) -> Tensor:
    widths = torch.minimum(wide, (high * (4 / 3)).round())
    heights = torch.minimum(high, (wide * (4 / 3)).round())
    tops, lefts = ((high - heights) / 2).floor(), ((wide - widths) / 2).floor()
    return torch.stack([tops, lefts, heights, widths], dim=1)
