"""Random ablation [Levine20]: the network learns to classify from a few random pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from robust0.lazy import torch
from robust0.registry import Count, Whole, setting
from robust0.training.methods.base import STEPS
from robust0.training.methods.parts import PartStep, hidden

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.models.classifiers import AblationNotes
    from robust0.rng import Stream


@STEPS.add
@dataclass(frozen=True, slots=True)
class RandomAblation(PartStep):
    """A few pixels of each image, drawn anew for every image and epoch; all others are hidden."""

    kind: ClassVar[str] = "ablation"
    source: ClassVar[str] = "[Levine20]"
    keep: Count = setting(75, "pixels shown", "[Levine20]")
    seed: Whole = setting(0, "of the masks that the classifier answers by")
    samples: Count = setting(100, "masks that the classifier answers by")
    per_image: Count = setting(1, "masks of an image per step", "[Levine20]")

    def notes(self) -> AblationNotes:
        """How many pixels, and how often."""
        from robust0.models.classifiers import AblationNotes

        return AblationNotes(keep=self.keep, seed=self.seed, samples=self.samples)

    def parts(self, images: Tensor, ids: Tensor, stream: Stream) -> Tensor:
        """Each image under masks of its own."""
        height, width = images.shape[2:]
        rows = ids.repeat_interleave(self.per_image)
        numbers = torch.arange(self.per_image, device=ids.device).repeat(len(ids))
        chosen = stream.subset(rows, numbers, self.keep, height * width)
        shown = torch.zeros(len(rows), height * width, dtype=torch.bool, device=ids.device)
        return hidden(images, shown.scatter_(1, chosen, value=True), self.per_image)
