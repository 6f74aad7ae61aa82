# ruff: noqa: ANN401 - timm passes its arguments through entry points
"""PreActResNet-18 as used for sparse robustness, and thinner variants, registered with timm.

Differences from the usual network [Zhong24]: softplus inside the blocks, ReLU after the last batch
normalisation, no input normalisation. Tensor names are those of the widely used CIFAR networks
(conv1, layer1.0.bn1, ..., bn, linear), so that published weights convert without renaming.
"""

from typing import Any

import torch
from timm.models import build_model_with_cfg, register_model
from torch import Tensor, nn
from torch.nn import functional

from robust0.models.networks.head import PooledNetwork, last_layer
from robust0.models.timm_cfg import small_image_cfg

_STAGES = (1, 2, 4, 8)  # channels in units of the width
_DEPTH = 2  # blocks per stage: 2 * 2 * 4 convolutions, the stem and the classifier make 18


# timm reads this name when it registers the functions at the end of this module.
default_cfgs = {
    name: small_image_cfg("linear")
    for name in (
        "preact_resnet18",
        "preact_resnet18_w8",
        "preact_resnet18_w16",
        "preact_resnet18_w24",
        "preact_resnet18_w32",
        "preact_resnet18_w48",
    )
}


class PreActBlock(nn.Module):
    """Two 3x3 convolutions, each after batch normalisation and softplus."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """The block's sum; a changed shape takes its shortcut from the activated input."""
        active = functional.softplus(self.bn1(x))
        kept: Tensor = x if self.shortcut is None else self.shortcut(active)
        inner = self.bn2(self.conv1(active))
        out: Tensor = self.conv2(functional.softplus(inner))
        return out + kept


class PreActResNet(PooledNetwork):
    """Pre-activation ResNet-18 with a 3x3 stem and global average pooling: any input size."""

    def __init__(
        self, num_classes: int = 10, in_chans: int = 3, width: int = 64, drop_rate: float = 0.0
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.in_chans = in_chans
        self.drop_rate = drop_rate
        self.conv1 = nn.Conv2d(in_chans, width, 3, padding=1, bias=False)
        self.feature_info: list[dict[str, Any]] = []
        inputs = width
        for index, multiple in enumerate(_STAGES):
            outputs = width * multiple
            stride = 1 if index == 0 else 2
            blocks = [PreActBlock(inputs, outputs, stride)]
            blocks += [PreActBlock(outputs, outputs, 1) for _ in range(_DEPTH - 1)]
            name = f"layer{index + 1}"
            self.add_module(name, nn.Sequential(*blocks))
            self.feature_info.append({"num_chs": outputs, "reduction": 2**index, "module": name})
            inputs = outputs
        self.num_features = self.head_hidden_size = inputs
        self.bn = nn.BatchNorm2d(inputs)
        self.linear = last_layer(inputs, num_classes)

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def group_matcher(self, *, coarse: bool = False) -> dict[str, str]:
        """Patterns by which timm groups parameters for layer-wise learning rates."""
        return {"stem": r"^conv1", "blocks": r"^layer(\d+)" if coarse else r"^layer(\d+)\.(\d+)"}

    def forward_features(self, x: Tensor) -> Tensor:
        """The activated feature map (B, 8 * width, H/8, W/8)."""
        x = self.conv1(x)
        for index in range(len(_STAGES)):
            x = self.get_submodule(f"layer{index + 1}")(x)
        return functional.relu(self.bn(x))


def _create(name: str, width: int, *, pretrained: bool, **arguments: Any) -> nn.Module:
    features = {"out_indices": (0, 1, 2, 3)}
    return build_model_with_cfg(
        PreActResNet, name, pretrained, feature_cfg=features, width=width, **arguments
    )


@register_model
def preact_resnet18(*, pretrained: bool = False, **arguments: Any) -> nn.Module:
    """The paper's PreActResNet-18, 64 channels wide."""
    return _create("preact_resnet18", 64, pretrained=pretrained, **arguments)


@register_model
def preact_resnet18_w8(*, pretrained: bool = False, **arguments: Any) -> nn.Module:
    """PreActResNet-18, 8 channels wide."""
    return _create("preact_resnet18_w8", 8, pretrained=pretrained, **arguments)


@register_model
def preact_resnet18_w16(*, pretrained: bool = False, **arguments: Any) -> nn.Module:
    """PreActResNet-18, 16 channels wide."""
    return _create("preact_resnet18_w16", 16, pretrained=pretrained, **arguments)


@register_model
def preact_resnet18_w24(*, pretrained: bool = False, **arguments: Any) -> nn.Module:
    """PreActResNet-18, 24 channels wide."""
    return _create("preact_resnet18_w24", 24, pretrained=pretrained, **arguments)


@register_model
def preact_resnet18_w32(*, pretrained: bool = False, **arguments: Any) -> nn.Module:
    """PreActResNet-18, 32 channels wide."""
    return _create("preact_resnet18_w32", 32, pretrained=pretrained, **arguments)


@register_model
def preact_resnet18_w48(*, pretrained: bool = False, **arguments: Any) -> nn.Module:
    """PreActResNet-18, 48 channels wide."""
    return _create("preact_resnet18_w48", 48, pretrained=pretrained, **arguments)
