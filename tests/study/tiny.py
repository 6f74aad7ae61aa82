"""A classifier of few weights, and images for it."""

import torch
from torch import nn

from robust0.rng import seeded


def tiny_network(width: int = 3, classes: int = 4) -> nn.Module:
    """Convolution, batch norm, softplus, linear: smooth, with statistics."""
    with seeded("tiny", width):
        network = nn.Sequential(
            nn.Conv2d(3, width, 3),
            nn.BatchNorm2d(width),
            nn.Softplus(),
            nn.Flatten(),
            nn.Linear(width * 36, classes),
        )
    return network.eval()


def images_and_labels(count: int, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (count, 3, 8, 8) in [0, 1] and their labels."""
    with seeded("images", count):
        return torch.rand(count, 3, 8, 8), torch.randint(classes, (count,))
