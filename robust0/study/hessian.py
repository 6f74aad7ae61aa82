"""The Hessian of the mean loss in the weights, one product at a time, in bounded memory."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from robust0.study.weights import evaluating, flat, shaped, trainable


def image_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """(B,) cross entropy, with the derivatives that torch itself gives it."""
    return nn.functional.cross_entropy(logits.float(), labels, reduction="none")


CHUNK = 64  # images whose graph of a double backward is held at once


@dataclass(slots=True)
class Hessian:
    """Products with the Hessian of the mean loss over all images; eval-mode statistics.

    A product goes over the images in chunks, so memory does not grow with their number.
    ``products`` counts whole products.
    """

    network: nn.Module
    images: Tensor  # (N, C, H, W), as the loss sees them: perturbed, or not
    labels: Tensor  # (N,)
    chunk: int = CHUNK
    objective: Callable[[Tensor, Tensor], Tensor] = image_losses  # (B,) from logits and labels
    products: int = 0
    weights: list[nn.Parameter] = field(init=False)

    def __post_init__(self) -> None:
        self.weights = trainable(self.network)

    @property
    def size(self) -> int:
        """How many weights there are."""
        return sum(weight.numel() for weight in self.weights)

    def __matmul__(self, vector: Tensor) -> Tensor:
        """The Hessian times a (P,) vector, in the vector's own precision and place."""
        device, dtype = self.weights[0].device, self.weights[0].dtype
        parts = shaped(vector.to(device, dtype), self.weights)
        total = torch.zeros_like(vector)
        with evaluating(self.network), torch.enable_grad():
            for images, labels in self._chunks():
                loss = self._loss(images, labels)
                slopes = torch.autograd.grad(
                    loss, self.weights, create_graph=True, materialize_grads=True
                )
                pairs = zip(slopes, parts, strict=True)
                along = torch.stack([(slope * part).sum() for slope, part in pairs]).sum()
                product = torch.autograd.grad(along, self.weights, materialize_grads=True)
                total += flat(product).detach().to(total)
        self.products += 1
        return total

    def loss(self) -> float:
        """The mean loss itself."""
        with evaluating(self.network), torch.no_grad():
            return sum(float(self._loss(images, labels)) for images, labels in self._chunks())

    def _loss(self, images: Tensor, labels: Tensor) -> Tensor:
        return self.objective(self.network(images), labels).sum() / len(self.images)

    def _chunks(self) -> "zip[tuple[Tensor, Tensor]]":
        return zip(self.images.split(self.chunk), self.labels.split(self.chunk), strict=True)
