"""Double masking [Xiang22]: the network learns to classify images with lattices hidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from robust0.lazy import torch
from robust0.registry import Count, setting
from robust0.training.methods.base import STEPS
from robust0.training.methods.parts import PartStep, hidden

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.models.classifiers import MaskNotes
    from robust0.rng import Stream


@STEPS.add
@dataclass(frozen=True, slots=True)
class LatticeMasks(PartStep):
    """Images with some lattices hidden, as double masking hides them: any two masks at once."""

    kind: ClassVar[str] = "masks"
    source: ClassVar[str] = "after [Xiang22]"
    stride: Count = setting(3, "of the lattices, of which there are stride squared")
    pixels: Count = setting(1, "changed pixels that the answer is proved to survive")
    per_image: Count = setting(1, "masks of an image per step")

    def notes(self) -> MaskNotes:
        """The lattices and how many a mask hides."""
        from robust0.models.classifiers import MaskNotes

        return MaskNotes(stride=self.stride, pixels=self.pixels)

    def parts(self, images: Tensor, ids: Tensor, stream: Stream) -> Tensor:
        """Between one and two masks' worth of lattices hidden, all sizes equally often."""
        from robust0.certificates.partition import StridedPartition

        height, width = images.shape[2:]
        owner = StridedPartition(height=height, width=width, stride=self.stride).owner()
        lattices, most = self.stride**2, min(2 * self.pixels, self.stride**2)
        rows = ids.repeat_interleave(self.per_image)
        numbers = torch.arange(self.per_image, device=ids.device).repeat(len(ids))
        order = stream.subset(rows, numbers, lattices, lattices, lane=1)
        sizes = stream.integers(rows, numbers, 1, most - self.pixels + 1, lane=2) + self.pixels
        place = order.argsort(dim=1)  # the turn at which each lattice would be hidden
        shown = (place >= sizes)[:, owner.to(images.device)]
        return hidden(images, shown, self.per_image)
