"""The copies of a model that a search asks: the same function, cheaper to compute."""

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from robust0.models.fast import winograd

# Narrow layers with more positions than this make an error of a sixth in what one pixel does to the
# logits of a CIFAR-10 network; narrow everywhere, it is two thirds (benchmarks/README.md).
MANY = 256


class StillBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation that no longer learns: one factor and one summand per channel.

    torch's own kernel also prepares the gradients of weight and bias, which a search never wants.
    """

    factor: Tensor  # (1, C, 1, 1)
    summand: Tensor

    def prepare(self, _: torch.dtype | None) -> None:
        """Work out the two from the statistics, in double precision."""
        factor, summand = line_of(self)
        for name, values in (("factor", factor), ("summand", summand)):
            shaped = values.to(self.running_mean).view(1, -1, 1, 1)
            self.register_buffer(name, shaped, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """As in eval mode; a model that switches its layers to training gets what it asks for."""
        if self.training:
            return super().forward(x)
        return torch.addcmul(self.summand, x, self.factor)


class TiledConv2d(nn.Conv2d):
    """A convolution with fewer multiplications where that pays and only logits are asked for."""

    kernels: Tensor | None

    def prepare(self, _: torch.dtype | None) -> None:
        """Transform the weight, if it is one that gains."""
        kernels = winograd.kernels_of(self.weight) if winograd.suits(self) else None
        self.register_buffer("kernels", kernels, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """As it was, but rounded differently."""
        kernels = None if torch.is_grad_enabled() else self.kernels
        if kernels is None or torch.is_autocast_enabled("cpu") or not winograd.pays(x):
            return super().forward(x)
        return winograd.convolve(x, kernels, self.bias)


class WideConv2d(TiledConv2d):
    """A convolution whose operands are narrow where it sees enough positions; its result is not.

    Sums rounded to eight bits would hide the small gains that an attack lives on. Grouped ones are
    float32 altogether: narrow, they are slow.
    """

    narrow: Tensor  # the weight

    def prepare(self, narrow: torch.dtype | None) -> None:
        """Round the weight once and for all."""
        super().prepare(narrow)
        self.register_buffer("narrow", self.weight.detach().to(narrow), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """As it was, to the precision of its operands."""
        if self.groups == 1 and _averages(x.shape[-2:].numel()):
            bias = None if self.bias is None else self.bias.to(self.narrow.dtype)
            wide: Tensor = self._conv_forward(x.to(self.narrow.dtype), self.narrow, bias).float()
            return wide
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float())


class WideLinear(nn.Linear):
    """The same for a linear layer, whose positions are all dimensions but the first and last."""

    narrow: Tensor

    def prepare(self, narrow: torch.dtype | None) -> None:
        """Round the weight once and for all."""
        self.register_buffer("narrow", self.weight.detach().to(narrow), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """As it was, to the precision of its operands."""
        if _averages(x.shape[1:-1].numel()):
            given = cast("Tensor | None", self.bias)
            bias = None if given is None else given.to(self.narrow.dtype)
            return functional.linear(x.to(self.narrow.dtype), self.narrow, bias).float()
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float())


PreparedLayer = StillBatchNorm2d | TiledConv2d | WideLinear


def _averages(positions: int) -> bool:
    """Whether rounding on this many positions averages out before the logits.

    A gradient points the way well enough if it does on more than one. Where only logits are asked
    for they decide between images that differ in a pixel or two, and must be finer than that.
    """
    return positions > (1 if torch.is_grad_enabled() else MANY)


def gains(model: nn.Module) -> bool:
    """Whether copies for searching would be cheaper than the model even in its own precision."""
    return any(_kind(module, None) is not None for module in model.modules())


def search_copies(
    model: nn.Module, count: int, narrow: torch.dtype | None = None
) -> list[nn.Module]:
    """Frozen copies in eval mode with batch normalisation and large convolutions prepared.

    With ``narrow``, a type that the device multiplies quickly, convolutions and linear layers use
    it for their operands, if they have many positions or a gradient is wanted. The copies share
    what was prepared, not what the model itself has: it may keep things there.
    """
    first = copy.deepcopy(model).eval().requires_grad_(False)  # noqa: FBT003 - by position in torch
    shared: dict[int, Tensor] = {}
    for module in first.modules():
        kind = _kind(module, narrow)
        if kind is not None:
            before = {id(tensor) for tensor in module.buffers()}
            module.__class__ = kind
            cast("PreparedLayer", module).prepare(narrow)
            shared |= {id(made): made for made in module.buffers() if id(made) not in before}
    return [first, *(copy.deepcopy(first, {**shared}) for _ in range(count - 1))]


def line_of(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Factor and summand per channel of batch normalisation in eval mode, in double precision."""
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None:
        raise ValueError("batch normalisation without statistics cannot be settled")
    factor = (_double(variance) + norm.eps).rsqrt()
    if norm.affine:
        factor = factor * _double(norm.weight)
    summand = -_double(mean) * factor
    return factor, summand + _double(norm.bias) if norm.affine else summand


def _double(values: Tensor) -> Tensor:
    return values.detach().cpu().double()  # not every device has float64


def _kind(module: nn.Module, narrow: torch.dtype | None) -> type[PreparedLayer] | None:
    """What a layer becomes in a copy; None: it stays. A hook may make its weight anew."""
    if module._forward_pre_hooks:
        return None
    if type(module) is nn.BatchNorm2d and module.running_var is not None:
        return StillBatchNorm2d
    if type(module) is nn.Conv2d:
        if narrow is not None:
            return WideConv2d
        return TiledConv2d if winograd.suits(module) else None
    return WideLinear if narrow is not None and type(module) is nn.Linear else None
