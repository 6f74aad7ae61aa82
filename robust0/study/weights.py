"""The trainable weights of a network as one vector, and a way to move them that always comes back.

Vectors are (P,) in the order of ``network.parameters()``; only trainable weights count.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from robust0.errors import ModelError
from robust0.rng import Stream

_ROW = 4096  # draws per row of a stream


def trainable(network: nn.Module) -> list[nn.Parameter]:
    """The weights that studies differentiate in."""
    found = [weight for weight in network.parameters() if weight.requires_grad]
    if not found:
        raise ModelError(
            "the network has no trainable weights", "studies of the loss need weights to vary"
        )
    return found


def flat(tensors: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    """One vector from tensors shaped as the weights."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def shaped(vector: Tensor, weights: list[nn.Parameter]) -> list[Tensor]:
    """A vector cut into tensors shaped as the weights."""
    parts = vector.split([weight.numel() for weight in weights])
    return [part.reshape(weight.shape) for part, weight in zip(parts, weights, strict=True)]


def random_vector(size: int, *name: object) -> Tensor:
    """(size,) float64 standard normals that the name decides."""
    rows = torch.arange(-(-size // _ROW))
    draws = Stream.of("study", *name).normal(rows, torch.zeros_like(rows), _ROW)
    return draws.reshape(-1)[:size].double()


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Eval mode inside; every module is put back as it was."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def moved(network: nn.Module, step: Tensor) -> Iterator[None]:
    """The network with ``step`` added to its weights; inside only, whatever happens there."""
    weights = trainable(network)
    before = [weight.detach().clone() for weight in weights]
    try:
        with torch.no_grad():
            for weight, part in zip(weights, shaped(step, weights), strict=True):
                weight.add_(part.to(weight))
        yield
    finally:
        with torch.no_grad():
            for weight, old in zip(weights, before, strict=True):
                weight.copy_(old)
