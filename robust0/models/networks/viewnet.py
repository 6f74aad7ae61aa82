# ruff: noqa: ANN401 - timm passes its arguments through entry points
"""A thin residual network for tiny pictures: views of 4x4 to 11x11 pixels, registered with timm.

Stages of residual blocks of two 3x3 convolutions; each stage but the first halves the map. The
defaults have 0.6 million weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from timm.models import build_model_with_cfg, register_model
from torch import Tensor, nn
from torch.nn import functional

from robust0.models.fast import winograd
from robust0.models.fast.searching import line_of
from robust0.models.networks.head import PooledNetwork, last_layer
from robust0.models.timm_cfg import small_image_cfg

# timm reads this name when it registers the function at the end of this module.
default_cfgs = {"viewnet": small_image_cfg("linear") | {"input_size": (4, 7, 7)}}


@dataclass(frozen=True, slots=True)
class Settled:
    """A convolution with the batch normalisation after it, whose statistics stand still."""

    weight: Tensor
    bias: Tensor
    stride: tuple[int, ...]
    padding: int
    kernels: Tensor | None  # of tiles, where a map of 4x4 gains by them

    @classmethod
    def of(cls, layer: nn.Conv2d, norm: nn.BatchNorm2d) -> "Settled":
        """One factor and one summand per channel, worked out in double precision."""
        factor, bias = line_of(norm)
        weight = layer.weight.detach()
        settled = (weight.cpu().double() * factor[:, None, None, None]).to(weight)
        kernels = winograd.kernels_of(settled) if winograd.suits(layer) else None
        return cls(settled, bias.to(weight), layer.stride, layer.kernel_size[0] // 2, kernels)

    def __call__(self, x: Tensor) -> Tensor:
        """The normalised convolution of (N, C, H, W)."""
        if self.kernels is not None and x.shape[2:] == (4, 4):
            return winograd.convolve_small(x, self.kernels, self.bias)
        return functional.conv2d(x, self.weight, self.bias, self.stride, self.padding)


class ViewBlock(nn.Module):
    """Two 3x3 convolutions with batch normalisation beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """The activated sum."""
        kept: Tensor = x if self.shortcut is None else self.shortcut(x)
        inner = functional.relu(self.bn1(self.conv1(x)))
        out: Tensor = self.bn2(self.conv2(inner))
        return functional.relu(out + kept)

    def settled(self) -> Callable[[Tensor], Tensor]:
        """The block in eval mode, with the weights of this moment."""
        first, second = Settled.of(self.conv1, self.bn1), Settled.of(self.conv2, self.bn2)
        shortcut = None if self.shortcut is None else Settled.of(*self.shortcut)

        def answer(x: Tensor) -> Tensor:
            kept = x if shortcut is None else shortcut(x)
            return second(first(x).relu_()).add_(kept).relu_()

        return answer


class ViewNet(PooledNetwork):
    """Residual blocks over a tiny picture, any size."""

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 4,
        widths: Sequence[int] = (64, 128),
        depths: Sequence[int] = (1, 2),
        drop_rate: float = 0.0,
    ) -> None:
        super().__init__()
        if len(widths) != len(depths) or not widths:
            raise ValueError("widths and depths need one number per stage")
        self.num_classes, self.in_chans, self.drop_rate = num_classes, in_chans, drop_rate
        self.conv1 = nn.Conv2d(in_chans, widths[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        inputs = widths[0]
        stages = []
        for number, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            blocks = [
                ViewBlock(inputs if block == 0 else width, width, 2 if number and not block else 1)
                for block in range(depth)
            ]
            stages.append(nn.Sequential(*blocks))
            inputs = width
        self.stages = nn.Sequential(*stages)
        self.num_features = self.head_hidden_size = inputs
        self.linear = last_layer(inputs, num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        """The activated feature map."""
        features: Tensor = self.stages(functional.relu(self.bn1(self.conv1(x))))
        return features

    def settled(self) -> Callable[[Tensor], Tensor]:
        """The network in eval mode with the weights of this moment: cheaper, and no more exact."""
        stem = Settled.of(self.conv1, self.bn1)
        found = [module for module in self.stages.modules() if isinstance(module, ViewBlock)]
        blocks = [block.settled() for block in found]

        def answer(x: Tensor) -> Tensor:
            x = stem(x).relu_()
            for block in blocks:
                x = block(x)
            return self.forward_head(x)

        return answer


@register_model
def viewnet(*, pretrained: bool = False, **arguments: Any) -> nn.Module:
    """A thin residual network for views of an image."""
    return build_model_with_cfg(ViewNet, "viewnet", pretrained, **arguments)
