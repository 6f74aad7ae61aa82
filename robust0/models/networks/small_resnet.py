# ruff: noqa: ANN401 - timm passes its arguments through entry points
"""ResNets for small images: timm's, with a 3x3 stem of stride 1 and no pooling after it.

timm has no argument for this stem. The first convolution's shape differs from that of the network
of the same depth, so weights of one cannot be loaded into the other by mistake.
"""

from typing import Any

from timm.models import build_model_with_cfg, register_model
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import nn

from robust0.models.timm_cfg import small_image_cfg

_REDUCTION = 4  # how much more timm's stem and pooling shrink the image


# timm reads this name when it registers the functions at the end of this module.
default_cfgs = {
    name: small_image_cfg("fc")
    for name in (
        "resnet18_small",
        "resnet34_small",
        "resnet50_small",
    )
}


class SmallResNet(ResNet):
    """timm's ResNet whose first stage sees the image at full resolution."""

    feature_info: list[dict[str, Any]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        stem = self.get_submodule("conv1")
        if not isinstance(stem, nn.Conv2d):
            raise TypeError("a small ResNet has its own stem: stem_type cannot be set")
        small = nn.Conv2d(
            stem.in_channels,
            stem.out_channels,
            3,
            padding=1,
            bias=False,
            device=stem.weight.device,
            dtype=stem.weight.dtype,
        )
        nn.init.kaiming_normal_(small.weight, mode="fan_out", nonlinearity="relu")
        self.add_module("conv1", small)
        self.add_module("maxpool", nn.Identity())
        for index, feature in enumerate(self.feature_info):
            feature["reduction"] = 1 if index == 0 else feature["reduction"] // _REDUCTION


def _create(name: str, *, pretrained: bool, **arguments: Any) -> nn.Module:
    return build_model_with_cfg(SmallResNet, name, pretrained, **arguments)


@register_model
def resnet18_small(*, pretrained: bool = False, **arguments: Any) -> nn.Module:
    """ResNet-18 for small images."""
    layout = {"block": BasicBlock, "layers": (2, 2, 2, 2)}
    return _create("resnet18_small", pretrained=pretrained, **layout, **arguments)


@register_model
def resnet34_small(*, pretrained: bool = False, **arguments: Any) -> nn.Module:
    """ResNet-34 for small images."""
    layout = {"block": BasicBlock, "layers": (3, 4, 6, 3)}
    return _create("resnet34_small", pretrained=pretrained, **layout, **arguments)


@register_model
def resnet50_small(*, pretrained: bool = False, **arguments: Any) -> nn.Module:
    """ResNet-50 for small images."""
    layout = {"block": Bottleneck, "layers": (3, 4, 6, 3)}
    return _create("resnet50_small", pretrained=pretrained, **layout, **arguments)
