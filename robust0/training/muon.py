"""Muon [Jordan24]: the momentum of every matrix is replaced by the nearest orthogonal one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from robust0.training.optimizers import Muon

# Newton-Schulz with a quintic of a steep start: singular values from 0.01 on come near one.
_QUINTIC = (3.4445, -4.7750, 2.0315)  # [Jordan24]


class OrthogonalMomentum(torch.optim.Optimizer):
    """Two groups of weights: matrices, which Muon moves, and the rest, which momentum moves."""

    def __init__(self, network: nn.Module, settings: Muon) -> None:
        matrices, rest = split(network)
        common = {"lr": settings.lr, "momentum": settings.momentum}
        groups: list[dict[str, Any]] = [
            {"params": matrices, "decay": settings.weight_decay, "rounds": settings.iterations},
            {"params": rest, "ratio": settings.rest, "rounds": 0},
        ]
        super().__init__([group for group in groups if group["params"]], common)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update; ``closure`` is there because torch has it, and is refused."""
        if closure is not None:
            raise ValueError("this optimiser takes no closure")
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, weight.grad, group)

    def _move(self, weight: Tensor, slope: Tensor, group: dict[str, Any]) -> None:
        rate, share = group["lr"], group["momentum"]
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        momentum = cast("Tensor", state["momentum"]).lerp_(slope, 1 - share)
        ahead = slope.lerp(momentum, share)
        if not group["rounds"]:
            # The mean of gradients is (1 - momentum) times their sum, which torch's SGD follows.
            weight.sub_(ahead, alpha=rate * group["ratio"] / (1 - share))
            return
        turned = orthogonal(ahead.reshape(len(ahead), -1), group["rounds"])
        rows, columns = turned.shape
        weight.mul_(1 - rate * group["decay"])
        weight.sub_(turned.view(weight.shape), alpha=rate * max(1.0, rows / columns) ** 0.5)


def orthogonal(matrix: Tensor, rounds: int) -> Tensor:
    """A matrix with the singular vectors of this one, whose singular values are near one."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    a, b, c = _QUINTIC
    now: Tensor = wide / (wide.norm() + 1e-7)
    for _ in range(rounds):
        square = now @ now.T
        now = a * now + (b * square + c * square @ square) @ now
    return now if wide is matrix else now.T.contiguous()


def split(network: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Weights that are matrices inside the network, and all others.

    A matrix is the weight of a linear layer or of a convolution all of whose inputs meet; the last
    linear layer, which classifies, is none.
    """
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    mixing = [m for m in network.modules() if isinstance(m, nn.Conv2d) and m.groups == 1]
    inside = {id(module.weight) for module in (*linear[:-1], *mixing)}
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    return (
        [weight for weight in weights if id(weight) in inside],
        [weight for weight in weights if id(weight) not in inside],
    )
