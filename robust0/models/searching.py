"""The copy of a model that a search asks: the same function, cheaper to compute."""

import copy
from typing import cast

import torch
from torch import Tensor, nn


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
    """A convolution whose result is float32, also where autocast narrows its operands.

    In float32 altogether where it is grouped, because narrow ones are slow, or sees one vector per
    image, because nothing averages the rounding of that.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Sums rounded to eight bits would hide the small gains that an attack lives on."""
        if self.groups == 1 and x.shape[-2:].numel() > 1:
            return super().forward(x).float()
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float())


class WideLinear(nn.Linear):
    """A linear layer whose result is float32, also where autocast narrows its operands.

    In float32 altogether where it sees one vector per image: a classifier's small inputs decide.
    """

    def forward(self, x: Tensor) -> Tensor:
        """As for convolutions."""
        if x.ndim > 2:
            return super().forward(x).float()
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float())


def has_norms(model: nn.Module) -> bool:
    """Whether a copy for searching would be cheaper than the model."""
    return any(_settles(module) for module in model.modules())


def search_copy(model: nn.Module, *, narrow: bool = False) -> nn.Module:
    """A frozen copy in eval mode with its batch normalisation settled.

    ``narrow`` prepares it for autocast: operands of convolutions and linear layers are narrow then,
    but not their results, nor what a layer sees that gets one vector per image.
    """
    twin = copy.deepcopy(model).eval().requires_grad_(False)  # noqa: FBT003 - by position in torch
    for module in twin.modules():
        if _settles(module):
            module.__class__ = StillBatchNorm2d
            cast("StillBatchNorm2d", module).settle()
    if narrow:
        _widen(twin)
    return twin


def _double(values: Tensor) -> Tensor:
    return values.detach().cpu().double()  # not every device has float64


def _widen(model: nn.Module) -> None:
    for module in model.modules():
        if type(module) is nn.Conv2d:
            module.__class__ = WideConv2d
        elif type(module) is nn.Linear:
            module.__class__ = WideLinear


def _settles(module: nn.Module) -> bool:
    return type(module) is nn.BatchNorm2d and module.running_var is not None
