"""The copy of a model that a search asks: the same function, cheaper to compute."""

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

# Narrow layers with more positions than this make an error of a sixth in what one pixel does to the
# logits of a CIFAR-10 network; narrow everywhere, it is two thirds (benchmarks/README.md).
MANY = 256


class StillBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation that no longer learns: one factor and one summand per channel.

    torch's own kernel also prepares the gradients of weight and bias, which a search never wants.
    """

    factor: Tensor  # (1, C, 1, 1)
    summand: Tensor

    def settle(self) -> None:
        """Work out the two from the statistics, in double precision."""
        mean, variance = self.running_mean, self.running_var
        if mean is None or variance is None:
            raise ValueError("batch normalisation without statistics cannot be settled")
        factor = (_double(variance) + self.eps).rsqrt()
        if self.affine:
            factor = factor * _double(self.weight)
        summand = -_double(mean) * factor
        if self.affine:
            summand = summand + _double(self.bias)
        for name, values in (("factor", factor), ("summand", summand)):
            shaped = values.to(mean).view(1, -1, 1, 1)
            self.register_buffer(name, shaped, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """As in eval mode; a model that switches its layers to training gets what it asks for."""
        if self.training:
            return super().forward(x)
        return torch.addcmul(self.summand, x, self.factor)


class WideConv2d(nn.Conv2d):
    """A convolution whose operands are narrow where it sees enough positions; its result is not.

    Sums rounded to eight bits would hide the small gains that an attack lives on. Grouped ones are
    float32 altogether: narrow, they are slow.
    """

    narrow: Tensor  # the weight

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

    def forward(self, x: Tensor) -> Tensor:
        """As it was, to the precision of its operands."""
        if _averages(x.shape[1:-1].numel()):
            given = cast("Tensor | None", self.bias)
            bias = None if given is None else given.to(self.narrow.dtype)
            return functional.linear(x.to(self.narrow.dtype), self.narrow, bias).float()
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float())


def _averages(positions: int) -> bool:
    """Whether rounding on so many positions averages out before the logits.

    A gradient points the way well enough if it does on more than one. Where only logits are asked
    for they decide between images that differ in a pixel or two, and must be finer than that.
    """
    return positions > (1 if torch.is_grad_enabled() else MANY)


def has_norms(model: nn.Module) -> bool:
    """Whether a copy for searching would be cheaper than the model."""
    return any(_settles(module) for module in model.modules())


def search_copy(model: nn.Module, narrow: torch.dtype | None = None) -> nn.Module:
    """A frozen copy in eval mode with its batch normalisation settled.

    With ``narrow``, a type that the device multiplies quickly, convolutions and linear layers use
    it for their operands, if they have many positions or a gradient is wanted.
    """
    twin = copy.deepcopy(model).eval().requires_grad_(False)  # noqa: FBT003 - by position in torch
    for module in twin.modules():
        if _settles(module):
            module.__class__ = StillBatchNorm2d
            cast("StillBatchNorm2d", module).settle()
        elif narrow is not None and type(module) in _WIDE:
            module.__class__ = _WIDE[type(module)]
            weight = cast("Tensor", module.weight)
            module.register_buffer("narrow", weight.detach().to(narrow), persistent=False)
    return twin


def _double(values: Tensor) -> Tensor:
    return values.detach().cpu().double()  # not every device has float64


_WIDE: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv2d: WideConv2d,
    nn.Linear: WideLinear,
}


def _settles(module: nn.Module) -> bool:
    return type(module) is nn.BatchNorm2d and module.running_var is not None
