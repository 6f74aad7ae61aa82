"""Mean and standard deviation inside the model, so that everyone else sees [0, 1]."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from robust0.models.voting import Certifiable


class Normalized(nn.Module):
    """A network together with its input normalisation; takes images in [0, 1].

    The statistics are buffers outside the state dict: they follow the module to its device, while
    ``bare(model).state_dict()`` keeps the keys that timm knows. Mean 0 with deviation 1 is exactly
    the identity: no arithmetic touches the image.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.network = network
        self.normalizes = any(value != 0.0 for value in mean) or any(value != 1.0 for value in std)
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, C, H, W) in [0, 1]."""
        logits: Tensor = self.network(self._normalized(images))
        return logits

    def settled(self) -> Callable[[Tensor], Tensor]:
        """The cheaper form in eval mode that the network offers, or this module."""
        settled = getattr(self.network, "settled", None)
        if settled is None:
            return self
        answer = settled()
        return lambda images: answer(self._normalized(images))

    def _normalized(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std if self.normalizes else images


def bare(model: nn.Module) -> nn.Module:
    """The network inside our classifiers and normalisation, torch.compile and data-parallel."""
    while True:
        if isinstance(model, Normalized | Certifiable):
            model = model.network
        elif isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        else:
            compiled = getattr(model, "_orig_mod", None)  # torch.compile's wrapper
            if not isinstance(compiled, nn.Module):
                return model
            model = compiled
