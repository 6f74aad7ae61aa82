"""Softplus as a processor computes it quickly, for searches that are not compiled.

Networks for sparse robustness are built on softplus [Zhong24]. torch's own takes a quarter of a
forward pass on a CPU; its exponential and its logarithm, one after the other, take half of that.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_LARGE = 80.0  # from here on exp is near the largest float32, and softplus is its argument


class QuickSoftplus(TorchFunctionMode):
    """Inside, float32 softplus on a CPU is :func:`softplus`, wherever a model calls it."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - as every function of torch
        """One call of a function of torch."""
        if func is functional.softplus and not kwargs and _is_plain(*args):
            return softplus(args[0])
        return func(*args, **(kwargs or {}))


def softplus(values: Tensor) -> Tensor:
    """log(1 + exp(x)) within 6e-7, its slope within 1e-7; an entry does not depend on others."""
    if torch.is_grad_enabled() and values.requires_grad:
        return cast("Tensor", _Softplus.apply(values))
    total = values.exp().add_(1)
    return _with_large(total.log_(), values)


class _Softplus(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        total = values.exp().add_(1)
        ctx.save_for_backward(values, total)
        return _with_large(total.log(), values)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        values, total = ctx.saved_tensors
        if torch.is_grad_enabled():  # a model that differentiates within itself
            return cast("Tensor", slope * values.sigmoid())
        return torch.addcdiv(slope, slope, total, value=-1)  # 1 - 1 / (1 + exp(x)) is its slope


def _with_large(answer: Tensor, values: Tensor) -> Tensor:
    """Mend entries whose exponential overflowed, if there are any (NaN counts: it hides others)."""
    if answer.numel() == 0 or float(answer.amax()) < _LARGE:
        return answer
    return torch.where(values > _LARGE, values, answer)


def _is_plain(
    values: object = None, beta: object = 1, threshold: object = 20, *others: object
) -> bool:
    return (
        isinstance(values, Tensor)
        and values.dtype == torch.float32
        and values.device.type == "cpu"
        and beta == 1
        and threshold == 20
        and not others
    )
