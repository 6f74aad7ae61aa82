"""Refuses a model that cannot be audited on these images, before anything is written."""

import re

import torch
from torch import nn

from robust0.auditing.guards import enough_memory
from robust0.data.imageset import ImageSet
from robust0.errors import DataError, EvaluationError, ModelError
from robust0.models.conduct import describe, misconduct
from robust0.models.fast.memory import out_of_memory
from robust0.models.fast.oracle import Oracle, checked_finite, frozen

# How torch and timm complain about images that a network was not made for: the user's mistake.
_OTHER_IMAGES = re.compile(
    r"\b(shapes?|sizes?|channels?|dimensions?|height|width)\b", re.IGNORECASE
)


def check_model(network: nn.Module, data: ImageSet, rows: int, device: torch.device) -> int:
    """The number of classes the model answers with, from one call on the first images."""
    if len(data) == 0:
        raise DataError(f"{data.name} has no images to audit", "give at least one image")
    for name, weight in network.named_parameters():
        if weight.is_floating_point() and weight.dtype != torch.float32:
            raise ModelError(
                f"the model's {name} is {str(weight.dtype).removeprefix('torch.')}, expected "
                "float32",
                "convert it with model.float(); --precision bf16 makes the search faster",
            )
        if weight.device.type != device.type:
            raise ModelError(
                f"the model's {name} is on {weight.device}, the images are on {device}",
                "move the model as a whole to one device",
            )
    oracle = Oracle(network, rows, device)
    images = oracle.filled(data.images(torch.arange(min(rows, len(data)))))
    before = images.clone()
    try:
        with frozen(network), enough_memory(rows):
            logits = oracle.exact(images)
    except EvaluationError as fault:
        if fault.__cause__ is None or out_of_memory(fault.__cause__):
            raise
        channels, height, width = data.image_shape
        said = describe(fault.__cause__)
        message = f"the model fails on {channels}x{height}x{width} images: {said}"
        if _OTHER_IMAGES.search(said):
            hint = "give it images of the size and channels it was made for"
            raise ModelError(message, hint) from fault
        raise misconduct(message) from fault
    if not torch.equal(images, before):  # by a way that autograd does not count
        raise misconduct("the model changes its input in place")
    checked_finite(logits)
    highest = int(data.labels.max())
    if highest >= logits.shape[1]:
        raise ModelError(
            f"the model has {logits.shape[1]} classes, {data.name} has labels up to {highest}",
            "audit it on the data it was trained for",
        )
    return logits.shape[1]
