"""What a checkpoint records of a classifier beyond its network: parts, rule, seeds.

Read from untrusted files, so every number is bounded.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import nn

from robust0.certificates.ablation import Ablation
from robust0.certificates.partition import (
    Partition,
    RandomPartition,
    StridedPartition,
    WalkingPartition,
)
from robust0.models.voting import AblationSmoothing, MaskCover, Rule, ViewVoting

Side = Annotated[int, Field(ge=1, le=1024)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Size = tuple[int, int, int]


class _Notes(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    # Hidden pixels are zero, and one more channel marks those that are shown.
    encoding: Literal["zeros+presence"] = "zeros+presence"


class PartitionVoteNotes(_Notes):
    """Votes of disjoint views; ``views`` is what a partition other than strided is asked for."""

    kind: Literal["partition-vote"] = "partition-vote"
    partition: Literal["strided", "walking", "random"] = "strided"
    stride: Side | None = None
    views: Annotated[int, Field(ge=1, le=2**20)] | None = None
    seed: Seed = 0
    rule: Rule = "plurality"
    mirror: bool = False

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        strided = self.partition == "strided"
        if (self.stride is None) == strided or (self.views is None) != strided:
            raise ValueError("a strided partition has a stride, the others a number of views")
        return self

    def split(self, height: int, width: int) -> Partition:
        """The partition of images of this size."""
        stride, views = self.stride or 1, self.views or 1
        if self.partition == "strided":
            return StridedPartition(height=height, width=width, stride=stride)
        if self.partition == "walking":
            return WalkingPartition(height=height, width=width, views=views)
        return RandomPartition(height=height, width=width, views=views, seed=self.seed)

    def inner_size(self, size: Size) -> Size:
        """What the network sees of images (C, H, W)."""
        channels, height, width = size
        stride = self.stride or 1
        return channels + 1, -(-height // stride), -(-width // stride)

    def wrap(self, network: nn.Module, size: Size, classes: int) -> ViewVoting:
        """The voting classifier around a network of views."""
        partition = self.split(*size[1:])
        return ViewVoting(network, partition, self.rule, classes, mirror=self.mirror)


class AblationNotes(_Notes):
    """Random masks that show ``keep`` pixels; ``samples`` of them answer."""

    kind: Literal["ablation"] = "ablation"
    keep: Annotated[int, Field(ge=1, le=2**20)]
    seed: Seed = 0
    samples: Annotated[int, Field(ge=1, le=100_000)] = 100

    def inner_size(self, size: Size) -> Size:
        """What the network sees of images (C, H, W)."""
        return size[0] + 1, size[1], size[2]

    def wrap(self, network: nn.Module, size: Size, classes: int) -> AblationSmoothing:
        """The smoothed classifier around a network of masked images."""
        Ablation(pixels=size[1] * size[2], keep=self.keep)  # refuses what cannot be shown
        return AblationSmoothing(network, self.keep, classes, seed=self.seed, samples=self.samples)


class MaskNotes(_Notes):
    """Double masking over the lattices of a stride, for this many changed pixels."""

    kind: Literal["masks"] = "masks"
    stride: Side
    pixels: Annotated[int, Field(ge=1, le=16)] = 1

    def inner_size(self, size: Size) -> Size:
        """What the network sees of images (C, H, W)."""
        return size[0] + 1, size[1], size[2]

    def wrap(self, network: nn.Module, size: Size, classes: int) -> MaskCover:
        """The masking classifier around a network of masked images."""
        lattices = StridedPartition(height=size[1], width=size[2], stride=self.stride)
        return MaskCover(network, lattices, self.pixels, classes)


ClassifierNotes = Annotated[
    PartitionVoteNotes | AblationNotes | MaskNotes, Field(discriminator="kind")
]
