"""The loss around a network's weights, on a plane through them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robust0.errors import RecipeError
from robust0.models.fast.oracle import Oracle, checked_finite, frozen
from robust0.study.hessian import image_losses
from robust0.study.perturb import ROWS, StudyImages
from robust0.study.weights import flat, moved, random_vector, shaped, trainable

Perturb = Callable[[nn.Module, StudyImages], Tensor]


@dataclass(frozen=True, slots=True)
class Plane:
    """A grid of steps along two directions, with the weights themselves in the middle."""

    directions: Tensor  # (2, P)
    span: float  # from the middle to the edge
    points: int  # per side, odd

    def __post_init__(self) -> None:
        if self.points < 3 or self.points % 2 == 0:
            raise RecipeError(
                f"a grid needs an odd number of points from 3 on, got {self.points}",
                "for example --grid 11: the middle is the network itself",
            )
        if not self.span > 0:
            raise RecipeError(f"a grid needs a span above 0, got {self.span}", "for example 0.5")

    @property
    def steps(self) -> list[float]:
        """The coordinates along either direction."""
        half = self.points // 2
        return [self.span * place / half for place in range(-half, half + 1)]

    def step(self, row: int, column: int) -> Tensor:
        """The move from the network's weights to a point; rows go along the second direction."""
        steps = self.steps
        return steps[column] * self.directions[0] + steps[row] * self.directions[1]


def random_directions(network: nn.Module, seed: int) -> Tensor:
    """Two random directions, each filter as long as the network's own [Li18].

    Biases and the scales of normalisation layers stay where they are.
    """
    weights = trainable(network)
    size = sum(weight.numel() for weight in weights)
    found = []
    for number in range(2):
        parts = []
        for part, weight in zip(
            shaped(random_vector(size, "direction", seed, number), weights), weights, strict=True
        ):
            if weight.ndim < 2:
                parts.append(torch.zeros_like(part))
                continue
            draw, own = part.flatten(1), weight.detach().flatten(1).to(part).cpu()
            lengths = own.norm(dim=1, keepdim=True) / draw.norm(dim=1, keepdim=True)
            parts.append((draw * lengths).reshape(part.shape))
        found.append(flat(parts))
    return torch.stack(found)


def mean_loss(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The mean cross entropy, in float32 and fixed calls."""
    with frozen(network):
        logits = checked_finite(Oracle(network, ROWS, images.device).exact(images))
    return image_losses(logits, labels).double().mean().item()


def grid_row(
    network: nn.Module, data: StudyImages, perturb: Perturb, plane: Plane, row: int
) -> list[float]:
    """The losses of one row of the grid; the weights come back whatever happens.

    ``perturb`` is asked anew at every point: one that returns the same images each time freezes the
    perturbation of the middle.
    """
    losses = []
    for column in range(plane.points):
        with moved(network, plane.step(row, column)):
            losses.append(mean_loss(network, perturb(network, data), data.labels))
    return losses
