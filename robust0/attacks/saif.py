"""SAIF: Frank-Wolfe steps on a continuous mask and on the magnitudes below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Gt

from robust0.attacks.base import Attack, Configured, Efforts, Reply, Rows, State, begin
from robust0.lazy import torch
from robust0.registry import setting
from robust0.threat import Threat, corners, top_mask

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True, kw_only=True)
class SAIFState(State):
    """Mask weights in [0, 1], magnitudes inside the box and the step size of each row."""

    weight: Tensor  # (B, S)
    magnitude: Tensor  # (B, g, S) within [-x, 1 - x]
    halvings: Tensor  # (B,) r: how often the loss went down
    loss: Tensor  # (B,) at the last look


@dataclass(frozen=True, slots=True, kw_only=True)
class SAIF(Attack[SAIFState]):
    """Move mask and magnitudes towards the vertices the gradient points to, with shrinking steps.

    The mask stays continuous, so a site can gather weight over many steps; what is evaluated is
    always its k largest entries, so every image asked about differs from the clean one in at most
    k sites. It starts at the first-order optimum of the clean image and draws nothing at random.
    """

    kind: ClassVar[str] = "saif"
    revision: ClassVar[int] = 1
    efforts: ClassVar[Efforts] = {
        "smoke": {"steps": 10},
        "quick": {"steps": 100},
        "standard": {"steps": 300},
        "paper": {"steps": 10_000},
    }
    configured: ClassVar[tuple[Configured, ...]] = (Configured("saif", rank=6),)

    steps: Annotated[int, Gt(0)] = setting(100, "Frank-Wolfe steps")

    def passes(self, threat: Threat, image_shape: tuple[int, int, int], classes: int) -> int:  # noqa: ARG002
        """A gradient at the clean image and at each iterate but the last, which is only judged."""
        return 2 * self.steps + 1

    def start(self, rows: Rows) -> SAIFState:
        """Nothing painted: the first look is at the clean image, for its gradient."""
        clean = rows.threat.view(rows.images)
        return SAIFState(
            **begin(rows),
            weight=torch.zeros_like(clean[:, 0]),
            magnitude=torch.zeros_like(clean),
            halvings=torch.ones_like(clean[:, 0, 0]),
            loss=torch.full_like(clean[:, 0, 0], -torch.inf),
        )

    def wants_gradient(self, state: SAIFState) -> Tensor:
        """All rows but those at their last look."""
        return state.step < self.steps

    def ask(self, state: SAIFState) -> Tensor:
        """The clean image with the k heaviest sites painted."""
        mask = top_mask(state.weight, state.threat.budget)[:, None]
        return state.image(torch.addcmul(state.clean, state.magnitude, mask.float()).clamp_(0, 1))

    def tell(self, state: SAIFState, reply: Reply) -> Tensor:
        """One Frank-Wolfe step; the first one, from the clean image, goes all the way."""
        if reply.gradient is not None:
            self._step(state, reply.gradient, self.objective(state, reply.logits))
        state.step = state.step + 1
        return state.step > self.steps

    def _step(self, state: SAIFState, slope: Tensor, loss: Tensor) -> None:
        # DEVIATES from the original: a too long step is answered by a shorter one next time, per
        # image, instead of by a line search that costs forwards and couples the images of a batch;
        # and a good one by a longer one, without which every row soon stands still.
        change = (loss < state.loss).float() - (loss > state.loss).float()
        state.halvings = (state.halvings + change).clamp(min=1)
        state.loss = loss
        # The mask weighs the magnitudes' gradient by something positive: its sign is the slope's.
        # Where there is no slope nothing moves.
        away = (corners(state.clean, slope) - state.clean - state.magnitude) * slope.sign().abs()
        first = state.step == 0
        length = torch.exp2(-state.halvings) * state.step.clamp(min=1).rsqrt()
        length = torch.where(first, 1.0, length)[:, None]
        # The first gain is that of the vertices themselves, later ones that of the magnitudes held.
        held = torch.addcmul(state.magnitude, away, first.float()[:, None, None])
        gain = (slope * held).sum(dim=1)
        chosen = top_mask(gain, state.threat.budget) & (gain > 0)
        state.weight = torch.lerp(state.weight, chosen.float(), length)
        moved = torch.addcmul(state.magnitude, away, length[:, None])
        state.magnitude = torch.clamp(moved, -state.clean, 1 - state.clean)
