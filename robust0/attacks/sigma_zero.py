"""Sigma-zero [Cina24]: descend a smooth count of changed sites together with the margin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from robust0.attacks.base import Attack, AttackName, Efforts, Reply, Rows, State, begin
from robust0.lazy import torch
from robust0.losses import margin
from robust0.registry import setting

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.threats import Threat

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


@dataclass(slots=True, kw_only=True)
class SigmaZeroState(State):
    """The perturbation, Adam's moments, the sparsity threshold and the best count of each row."""

    perturbation: Tensor  # (B, g, S) within [-x, 1 - x]
    first: Tensor  # (B, g, S)
    second: Tensor  # (B, g, S)
    threshold: Tensor  # (B,)
    fewest: Tensor  # (B,) sites of the sparsest misclassified iterate; S + 1 while there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class SigmaZero(Attack[SigmaZeroState]):
    """Minimise the hinge of the margin plus a smooth l0 count, cutting off small changes each step.

    A minimum-norm attack: its iterates may change more than k sites, and only those that do not are
    hits. Channels of one site are one group: they are counted together and cut off together (singly
    with ``elementwise``); in feature space this is the original. Reference: [Cina24].
    """

    kind: ClassVar[str] = "sigma-zero"
    revision: ClassVar[int] = 1
    leaves_budget: ClassVar[bool] = True
    efforts: ClassVar[Efforts] = {
        "smoke": {"steps": 10},
        "quick": {"steps": 100},
        "standard": {"steps": 300},
        "paper": {"steps": 10_000},
    }
    configured: ClassVar[tuple[AttackName, ...]] = (AttackName("sigma-zero", rank=5),)

    steps: Annotated[int, Gt(0)] = setting(100, "Adam steps")
    sigma: Annotated[float, Gt(0)] = setting(1e-3, "smoothness of the count", "[Cina24]")
    threshold: Annotated[float, Ge(0), Le(1)] = setting(
        0.3, "changes below it are cut off, at first", "[Cina24]"
    )
    lr: Annotated[float, Gt(0)] = setting(1.0, "first step size", "[Cina24]")
    threshold_step: Annotated[float, Ge(0)] = setting(
        0.01, "how fast the threshold moves", "[Cina24]"
    )
    elementwise: bool = setting(False, "count and cut off channels singly")

    def passes(self, threat: Threat, image_shape: tuple[int, int, int], classes: int) -> int:  # noqa: ARG002
        """A forward and a backward per step, and a look at where the last step led."""
        return 2 * self.steps + 1

    def start(self, rows: Rows) -> SigmaZeroState:
        """Nothing changed yet; the start is the same in every run."""
        clean = rows.threat.view(rows.images)
        return SigmaZeroState(
            **begin(rows),
            perturbation=torch.zeros_like(clean),
            first=torch.zeros_like(clean),
            second=torch.zeros_like(clean),
            threshold=torch.full_like(clean[:, 0, 0], self.threshold),
            fewest=torch.full_like(rows.ids, clean.shape[2] + 1),
        )

    def wants_gradient(self, state: SigmaZeroState) -> Tensor:
        """All rows but those at their last look."""
        return state.step < self.steps

    def ask(self, state: SigmaZeroState) -> Tensor:
        """The image as it stands."""
        return state.image((state.clean + state.perturbation).clamp(0, 1))

    def objective(self, state: SigmaZeroState, logits: Tensor) -> Tensor:
        """The negative hinge -max(margin, 0): the engine climbs, while the attack's loss descends.

        The smooth count is not in it: its gradient has a closed form and is added in ``tell``.
        """
        return -margin(logits, state.labels).relu()

    def tell(self, state: SigmaZeroState, reply: Reply) -> Tensor:
        """Note the count of a misclassified iterate, then take an Adam step and sparsify."""
        fooled = reply.logits.argmax(dim=1) != state.labels
        size = _by_site(state.perturbation.square())
        count = (size > 0).sum(dim=(1, 2))
        state.fewest = torch.where(fooled, torch.minimum(state.fewest, count), state.fewest)
        if reply.gradient is not None:
            # The gradient of sum_i n_i / (n_i + sigma) / S, n_i the squared size of site i.
            weight = (2 * self.sigma / size.shape[2]) / (size + self.sigma).square_()
            self._descend(state, state.perturbation * weight - reply.gradient)
            self._sparsify(state, fooled)
        state.step = state.step + 1
        return state.step > self.steps

    def _descend(self, state: SigmaZeroState, slope: Tensor) -> None:
        slope = slope / slope.abs().amax(dim=(1, 2), keepdim=True).clamp_(min=1e-12)
        state.first = torch.lerp(slope, state.first, _BETAS[0])
        state.second = torch.lerp(slope.square(), state.second, _BETAS[1])
        taken = (state.step + 1).double()[:, None, None]
        scale = self._rate(state.step)[:, None, None] / (1 - _BETAS[0] ** taken)
        spread = (1 - _BETAS[1] ** taken).rsqrt().float() * state.second.sqrt() + _EPSILON
        moved = state.perturbation - scale.float() * state.first / spread
        state.perturbation = torch.clamp(moved, -state.clean, 1 - state.clean)

    def _sparsify(self, state: SigmaZeroState, fooled: Tensor) -> None:
        # Room to spare on the far side of the boundary buys a higher cut-off.
        change = self.threshold_step * self._rate(state.step + 1)
        state.threshold = (state.threshold + torch.where(fooled, change, -change)).clamp_(0, 1)
        size = state.perturbation.abs()
        if not self.elementwise and size.shape[1] > 1:
            size = size.amax(dim=1, keepdim=True)
        state.perturbation = state.perturbation * (size >= state.threshold[:, None, None]).float()

    def _rate(self, step: Tensor) -> Tensor:
        """Cosine from lr to a tenth of it over the steps."""
        swing = (1 + torch.cos(step * (math.pi / self.steps))) / 2
        return self.lr * (0.1 + 0.9 * swing)


def _by_site(values: Tensor) -> Tensor:
    """(B, 1, S) sums over the channels of each site."""
    return values if values.shape[1] == 1 else values.sum(dim=1, keepdim=True)
