"""Votes of disjoint views: one shared network learns to classify any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from robust0.lazy import torch
from robust0.registry import Count, Whole, setting
from robust0.training.methods.base import STEPS
from robust0.training.methods.parts import PartStep

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.models.classifiers import PartitionVoteNotes
    from robust0.rng import Stream


@STEPS.add
@dataclass(frozen=True, slots=True)
class PartitionVote(PartStep):
    """Views of a partition, drawn anew for every image and epoch."""

    kind: ClassVar[str] = "partition-vote"
    source: ClassVar[str] = "after [Hammoudeh23]"
    partition: Literal["strided", "walking", "random"] = setting(
        "strided",
        "small dense views, or whole images with all but every T-th or random pixels hidden",
    )
    stride: Count = setting(5, "of strided views, of which there are stride squared")
    views: Count = setting(25, "how many views the other partitions have")
    seed: Whole = setting(0, "of a random partition")
    rule: Literal["plurality", "run-off", "soft"] = setting("plurality", "how votes decide")
    mirror: bool = setting(False, "add the logits of a view's mirror image to its own")
    per_image: Count = setting(1, "views of an image per step")

    def notes(self) -> PartitionVoteNotes:
        """Stride or number of views, whichever the partition has."""
        from robust0.models.classifiers import PartitionVoteNotes

        strided = self.partition == "strided"
        return PartitionVoteNotes(
            partition=self.partition,
            stride=self.stride if strided else None,
            views=None if strided else self.views,
            seed=self.seed if self.partition == "random" else 0,
            rule=self.rule,
            mirror=self.mirror,
        )

    def parts(self, images: Tensor, ids: Tensor, stream: Stream) -> Tensor:
        """Distinct random views of each image."""
        from robust0.certificates.partition import hide

        partition = self.notes().split(*images.shape[2:])
        each = min(self.per_image, partition.views)
        chosen = stream.subset(ids, torch.zeros_like(ids), each, partition.views)
        if self.partition == "strided":
            rows = torch.arange(len(images), device=images.device)[:, None]
            return partition.split(images)[rows, chosen]
        mine = partition.owner().to(images.device) == chosen[:, :, None]
        return hide(images[:, None], mine.view(len(images), each, 1, *images.shape[2:]))
