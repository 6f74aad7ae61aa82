"""Which images an audit looks at when it does not look at all of them."""

import torch
from torch import Tensor

from robust0.data.imageset import ImageSet
from robust0.rng import Stream

_STREAM = (0, "images of an audit")


def choose(data: ImageSet, wanted: int | None) -> tuple[ImageSet, str]:
    """This many images, and how they were chosen; None, or more than there are: all.

    The first ones where the stored order is known to be random. Otherwise it may well be sorted by
    class, so each class gives one image in turn, drawn with a fixed seed, until there are enough.
    A larger choice holds the smaller ones. Images keep the order they are stored in.
    """
    count = len(data) if wanted is None else min(wanted, len(data))
    if count == len(data):
        return data, f"all {count:,}"
    if data.origin.shuffled:
        return data.subset(torch.arange(count)), f"the first {count:,}; the stored order is random"
    how = f"{count:,} of {len(data):,}, drawn with a fixed seed, each class in turn"
    return data.subset(_in_turn(data.labels.cpu())[:count].sort().values), how


def _in_turn(labels: Tensor) -> Tensor:
    """All positions: the first of each class in a random order, then the second of each, ..."""
    turn = torch.empty_like(labels)
    for label in labels.unique().tolist():
        members = (labels == label).nonzero()[:, 0]
        order = Stream.of(*_STREAM, label).permutation(len(members))
        turn[members[order]] = torch.arange(len(members))
    shuffled = Stream.of(*_STREAM).permutation(len(labels))
    return shuffled[turn[shuffled].argsort(stable=True)]
