"""torch.compile for searching on any device, with a softplus that a processor computes quickly.

Networks for sparse robustness are built on softplus [Zhong24]. On a CPU its logarithm and its
exponential take a fifth of a forward pass; polynomials are exact enough and a part of that.
"""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._dynamo import lookup_backend
from torch.fx import GraphModule
from torch.nn import functional

# Polynomials, the powers in rising order, interpolated at Chebyshev's nodes: log(1 + t) / t on
# [0, 1], and 2 ** t on [-1/2, 1/2]. Their relative errors are below 3e-7.
_LOGARITHM = (
    0.999999780758505, -0.4999717452300747, 0.3327192838340748, -0.24474774178533362,
    0.17687476700488722, -0.1068500286373834, 0.04349389981460339, -0.008371152549078937,
)  # fmt: skip
_POWER = (
    1.0000000754548974, 0.6931471880262267, 0.24022107485307986, 0.05550357114222052,
    0.009676031918342038, 0.0013390863363883152,
)  # fmt: skip
_SMALLEST = -126.0  # the exponent of the smallest ordinary float32
_BIAS, _FRACTION_BITS = 127, 23


def _polynomial(factors: Sequence[float], values: Tensor) -> Tensor:
    total = torch.full_like(values, factors[-1])
    for factor in factors[-2::-1]:
        total = total * values + factor
    return total


def _power_of_two(exponent: Tensor) -> Tensor:
    """2 ** exponent for exponents from _SMALLEST to 0: its whole part makes the bits of a float."""
    whole = exponent.round()
    bits = (whole + _BIAS).to(torch.int32) << _FRACTION_BITS
    return _polynomial(_POWER, exponent - whole) * bits.view(torch.float32)


class Softplus(torch.autograd.Function):
    """log(1 + exp(x)) within 4e-7, by multiplications and additions alone."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ANN401 - torch has no type for it
        """Relu plus what is missing to it, which is a function of exp(-|x|) alone."""
        ctx.save_for_backward(values)
        part = _power_of_two((values.abs() * -math.log2(math.e)).clamp(min=_SMALLEST))
        return values.relu() + part * _polynomial(_LOGARITHM, part)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:  # noqa: ANN401
        """The slope of softplus is the sigmoid."""
        (values,) = ctx.saved_tensors
        return cast("Tensor", slopes[0] * values.sigmoid())


def softplus(values: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """Stands in for torch's; anything but float32 on a CPU and the usual settings goes there."""
    if beta != 1 or values.dtype != torch.float32 or values.device.type != "cpu":
        return functional.softplus(values, beta, threshold)
    return cast("Tensor", Softplus.apply(values))


def hush() -> None:
    """Compiling on a machine without a GPU, torch warns that there is none."""
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)


def compiled(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The model, compiled at its first call for the shape of that call."""

    def ask(images: Tensor) -> Tensor:
        return cast("Tensor", model(images))

    # torch gives up after some compilations of the same code, whichever model it calls.
    ask.__code__ = ask.__code__.replace()
    hush()
    return torch.compile(ask, dynamic=False, backend=_inductor)


# Inductor's usual kernels on a CPU hold the interpreter's lock: calls of several threads would wait
# for each other. A whole graph in C++ releases it.
def _inductor(graph: GraphModule, examples: Sequence[Tensor]) -> Callable[..., Any]:
    compile_graph = cast("Callable[..., Callable[..., Any]]", lookup_backend("inductor"))
    patches = {"cpp_wrapper": "cpu" in {example.device.type for example in examples}}
    return compile_graph(with_quick_softplus(graph), [*examples], config_patches=patches)


def with_quick_softplus(graph: GraphModule) -> GraphModule:
    """The graph with every call of torch's softplus turned into one of ours."""
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target is functional.softplus:
            node.target = softplus
    graph.recompile()
    return graph
