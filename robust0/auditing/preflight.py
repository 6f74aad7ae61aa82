"""Refuses a model that cannot be audited on these images, before anything is written."""

import torch
from torch import nn

from robust0.data.imageset import ImageSet
from robust0.errors import DataError, ModelError
from robust0.models.fast.oracle import Oracle, checked_finite, frozen
from robust0.models.header import one_line


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
    images = data.images(torch.arange(min(rows, len(data))))
    try:
        with frozen(network):
            logits = Oracle(network, rows, device).exact(images)
    except ModelError:
        raise
    except Exception as problem:  # the network's own complaint, whatever its kind
        channels, height, width = data.image_shape
        raise ModelError(
            f"the model fails on {channels}x{height}x{width} images: "
            f"{type(problem).__name__}: {one_line(problem)}",
            "give it images of the size and channels it was made for",
        ) from problem
    checked_finite(logits)
    highest = int(data.labels.max())
    if highest >= logits.shape[1]:
        raise ModelError(
            f"the model has {logits.shape[1]} classes, {data.name} has labels up to {highest}",
            "audit it on the data it was trained for",
        )
    return logits.shape[1]
