"""How far apart the weight gradients of two attacks are, per batch and per image."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robust0.study.hessian import image_losses
from robust0.study.weights import evaluating, flat, trainable


@dataclass(frozen=True, slots=True)
class GradientGap:
    """Two gradients of the mean loss of a batch, compared."""

    distance: float  # l2, between them
    first: float  # l2 norm of the first
    second: float
    cosine: float  # 0 where one of them vanishes


def weight_gradient(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """(P,) gradient of the mean cross entropy; eval-mode statistics, ``.grad`` untouched."""
    weights = trainable(network)
    with evaluating(network), torch.enable_grad():
        loss = image_losses(network(images), labels).mean()
        return flat(torch.autograd.grad(loss, weights, materialize_grads=True)).detach()


def gradient_gap(network: nn.Module, first: Tensor, second: Tensor, labels: Tensor) -> GradientGap:
    """Compare the gradients on two perturbations of the same batch."""
    one, two = (weight_gradient(network, images, labels) for images in (first, second))
    norms = float(one.norm()), float(two.norm())
    product = float(one @ two)
    cosine = product / (norms[0] * norms[1]) if min(norms) > 0 else 0.0
    return GradientGap(float((one - two).norm()), *norms, cosine)
