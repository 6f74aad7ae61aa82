"""torch.compile for searching on any device, with a softplus that a processor computes quickly.

Networks for sparse robustness are built on softplus [Zhong24]. On a CPU its logarithm alone takes a
fifth of a forward pass; a polynomial is as exact in float32 and a small part of that.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._dynamo import lookup_backend
from torch.fx import GraphModule
from torch.nn import functional

# log(1 + t) / t on [0, 1], the powers of t in rising order: interpolated at Chebyshev's nodes. In
# float32 the error of t times this is below 2e-7, absolute and relative.
_SERIES = (
    0.9999999659255084, -0.4999944497632982, 0.33318121707353093, -0.2483539898720075,
    0.19076880730853912, -0.13602247612385465, 0.0775160866235987, -0.029074064606579537,
    0.0051261021233726485,
)  # fmt: skip


class Softplus(torch.autograd.Function):
    """log(1 + exp(x)) to float32's precision, without a logarithm."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ANN401 - torch has no type for it
        """Relu plus what is missing to it, which is a function of exp(-|x|) alone."""
        ctx.save_for_backward(values)
        part = (-values.abs()).exp()
        total = torch.full_like(part, _SERIES[-1])
        for factor in _SERIES[-2::-1]:
            total = total * part + factor
        return values.relu() + part * total

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


def compiled(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The model, compiled at its first call for the shape of that call."""
    # On a machine without a GPU it warns that there is none.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    return torch.compile(model, dynamic=False, backend=_inductor)


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
