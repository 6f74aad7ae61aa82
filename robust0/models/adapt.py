"""Which network a name means for images of a given size: adaptations, shown and recorded.

Most networks are made for 224x224. On 32x32 their first layer would throw most of the image away,
or they refuse it. Each family has its own cure; what the user sets by hand is never overruled.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from timm.models import get_pretrained_cfg, is_model_in_modules

from robust0.errors import ModelError
from robust0.models.build import NetworkSpec, check_arguments, check_data, check_name
from robust0.models.sources import Source, find_source

SMALL = 64  # pixels; up to here an image counts as small
_SMALL_RESNETS = {name: f"{name}_small" for name in ("resnet18", "resnet34", "resnet50")}


@dataclass(frozen=True, slots=True)
class AdaptationPlan:
    """A network chosen for a data set: what it is, how it was adapted, where weights come from."""

    spec: NetworkSpec
    adaptations: tuple[str, ...]  # sentences for the user and the checkpoint; empty: as timm has it
    source: Source | None = None  # of pretrained weights


@dataclass(frozen=True, slots=True)
class _Wish:
    """What an adaptation looks at."""

    arch: str  # without a tag
    size: tuple[int, int]
    pretrained: bool
    set_by_user: frozenset[str]
    default_size: tuple[int, int]

    @property
    def small(self) -> bool:
        return max(self.size) <= SMALL

    @property
    def shown(self) -> str:
        return f"{self.size[0]}x{self.size[1]} images"

    @property
    def img_size(self) -> int | list[int]:
        return self.size[0] if self.size[0] == self.size[1] else list(self.size)


@dataclass(frozen=True, slots=True)
class _Change:
    """An adaptation: another name, more arguments, and the sentence about it."""

    note: str
    arguments: Mapping[str, Any] | None = None
    arch: str | None = None


def adaptation_plan(
    name: str,
    *,
    image_shape: tuple[int, int, int],
    classes: int,
    pretrained: bool = False,
    args: Mapping[str, Any] | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    adapt: bool = True,
) -> AdaptationPlan:
    """Choose the network that ``name`` means for images (C, H, W) and this many classes.

    Args:
        name: a timm name, or with ``pretrained`` also hf-hub:OWNER/NAME or local-dir:PATH.
        image_shape: channels, height and width of the data.
        classes: how many classes the data has.
        pretrained: start from published weights; they also give mean and std.
        args: further arguments of timm.create_model; they win over adaptations.
        mean: normalisation inside the model, one per channel; default: none.
        std: see ``mean``.
        adapt: False takes the name literally, for weights that already exist.
    """
    given = dict(args or {})
    check_arguments(given)
    check_data(image_shape, classes)
    source = _source(name, pretrained=pretrained)
    arch = source.arch if source is not None else name
    check_name(arch)
    arguments = {**(source.arguments if source is not None else {}), **given}
    change: _Change | None = None
    if adapt:
        if "img_size" not in given:
            arguments.pop("img_size", None)  # the published size; the data's own is set below
        change = _adaptation(arch, image_shape, frozenset(given), pretrained=pretrained)
    if change is not None:
        arch = change.arch or arch
        arguments.update(change.arguments or {})
    if source is not None and mean is None and std is None:
        mean, std = source.statistics(image_shape[0])
    mean, std = _checked(mean, std, image_shape[0])
    spec = NetworkSpec(arch, classes, image_shape, mean, std, arguments)
    return AdaptationPlan(spec, () if change is None else (change.note,), source)


def _source(name: str, *, pretrained: bool) -> Source | None:
    if pretrained:
        return find_source(name)
    if ":" in name:
        raise ModelError(
            f"{name} names published weights, but a fresh network was asked for",
            "add --pretrained, or use the plain name of a timm network",
        )
    return None


def _checked(
    mean: tuple[float, ...] | None, std: tuple[float, ...] | None, channels: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    mean = (0.0,) * channels if mean is None else mean
    std = (1.0,) * channels if std is None else std
    finite = all(math.isfinite(value) for value in (*mean, *std))
    if not finite or len(mean) != channels or len(std) != channels or min(std) <= 0:
        raise ModelError(
            f"mean {mean} and std {std} do not fit {channels}-channel images",
            "give one mean and one positive std per channel",
        )
    return mean, std


def _adaptation(
    arch: str, image_shape: tuple[int, int, int], given: frozenset[str], *, pretrained: bool
) -> _Change | None:
    published = get_pretrained_cfg(arch)
    size = published.input_size if published is not None else (3, 224, 224)
    wish = _Wish(
        arch=arch.partition(".")[0],
        size=(image_shape[1], image_shape[2]),
        pretrained=pretrained,
        set_by_user=given,
        default_size=(size[1], size[2]),
    )
    for modules, cure in _FAMILIES:
        if is_model_in_modules(wish.arch, modules):
            return cure(wish)
    fixed = published is not None and published.fixed_input_size
    return _resize(wish) if fixed else None


def _convnext(wish: _Wish) -> _Change | None:
    if not wish.small or "patch_size" in wish.set_by_user or wish.arch.endswith("_ols"):
        return None  # overlapping stems have no patch size
    if wish.pretrained:
        return _Change(f"patch size kept for {wish.shown}: the pretrained stem needs it")
    return _Change(f"patch_size=2 for {wish.shown}", {"patch_size": 2})


def _swin(wish: _Wish) -> _Change | None:
    if not wish.small or wish.set_by_user & {"img_size", "patch_size", "window_size"}:
        return _resize(wish)
    arguments = {"img_size": wish.img_size, "patch_size": 2, "window_size": 4}
    return _Change(_sentence(arguments, wish), arguments)


def _vit(wish: _Wish) -> _Change | None:
    if not wish.small or wish.set_by_user & {"img_size", "patch_size"}:
        return _resize(wish)
    largest = 4 if max(wish.size) <= 32 else 8  # about 8x8 patches
    fitting = (patch for patch in (8, 4, 2) if patch <= largest)
    patch = next((p for p in fitting if not any(side % p for side in wish.size)), None)
    if patch is None:
        return _resize(wish)
    arguments = {"img_size": wish.img_size, "patch_size": patch}
    return _Change(_sentence(arguments, wish), arguments)


def _resnet(wish: _Wish) -> _Change | None:
    small = _SMALL_RESNETS.get(wish.arch)
    if small is None or not wish.small:
        return None
    if wish.pretrained:
        return _Change(f"7x7 stem kept for {wish.shown}: the pretrained weights need it")
    return _Change(f"{small} for {wish.shown}: 3x3 stem, no pooling", arch=small)


def _resize(wish: _Wish) -> _Change | None:
    if wish.size == wish.default_size or "img_size" in wish.set_by_user:
        return None
    arguments = {"img_size": wish.img_size}
    return _Change(_sentence(arguments, wish), arguments)


def _sentence(arguments: Mapping[str, Any], wish: _Wish) -> str:
    shown = ", ".join(f"{key}={value}" for key, value in arguments.items())
    resampled = "; timm resamples the pretrained weights" if wish.pretrained else ""
    return f"{shown} for {wish.shown}{resampled}"


_FAMILIES: tuple[tuple[tuple[str, ...], Callable[[_Wish], _Change | None]], ...] = (
    (("convnext",), _convnext),
    (("swin_transformer", "swin_transformer_v2"), _swin),
    (("vision_transformer", "deit", "beit"), _vit),
    (("resnet",), _resnet),
)
