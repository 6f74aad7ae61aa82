"""SAIF [Imtiaz22]: Frank-Wolfe steps on a continuous mask and on the magnitudes below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Gt

from robust0.attacks.base import Attack, AttackName, Efforts, Reply, Rows, State, begin
from robust0.lazy import torch
from robust0.registry import setting
from robust0.threats.sparse import corners, top_mask

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.threats import Threat

_SITES, _MAGNITUDES = 0, 1  # lanes of the random stream


@dataclass(slots=True, kw_only=True)
class SAIFState(State):
    """Mask weights in [0, 1], magnitudes inside the box and the step size of each row."""

    weight: Tensor  # (B, S)
    magnitude: Tensor  # (B, g, S) within [-x, 1 - x]
    halvings: Tensor  # (B,) r: how often the loss went down
    loss: Tensor  # (B,) at the last look, or where the step under trial starts
    taken: Tensor  # (B,) steps that were kept
    # Where the step under trial starts, and the slope there; empty without a line search.
    old_weight: Tensor  # (B, S)
    old_magnitude: Tensor  # (B, g, S)
    slope: Tensor  # (B, g, S)


@dataclass(frozen=True, slots=True, kw_only=True)
class SAIF(Attack[SAIFState]):
    """Move mask and magnitudes towards the vertices the gradient points to, with shrinking steps.

    The mask stays continuous, so a site can gather weight over many steps; what is evaluated is
    always its k largest entries, so every image asked about differs from the clean one in at most
    k sites. By default it is robust0's own form: vertices are corners of the box, all magnitudes
    move, and each image's steps shrink and grow with its loss. It starts at the first-order optimum
    of the clean image and then draws nothing at random.

    ``imtiaz2022`` takes the steps of the paper: towards the unit ball's corners at sites that have
    weight, and a step that lowers the loss is taken back and halved; only that the k heaviest sites
    are painted, instead of all that have weight, is ours. ``binarised`` starts at random sites and
    rounds the mask to k sites after every step of length 1 / sqrt(t), as a reimplementation does
    that published numbers may stem from.
    """

    kind: ClassVar[str] = "saif"
    revision: ClassVar[int] = 1
    efforts: ClassVar[Efforts] = {
        "smoke": {"steps": 10},
        "quick": {"steps": 100},
        "standard": {"steps": 300},
        "paper": {"steps": 10_000},
    }
    configured: ClassVar[tuple[AttackName, ...]] = (AttackName("saif", rank=6),)

    steps: Annotated[int, Gt(0)] = setting(100, "Frank-Wolfe steps")
    origin: Literal["gradient", "random"] = setting(
        "gradient", "first sites: those of the largest slope, or random ones in random colours"
    )
    compat: Literal["imtiaz2022", "binarised"] | None = setting(
        None, "take the steps of the paper, or round the mask after each"
    )

    def __post_init__(self) -> None:
        """What ``compat`` implies is what records say."""
        if self.compat:
            object.__setattr__(self, "origin", "random" if self._rounds else "gradient")

    @property
    def _rounds(self) -> bool:
        return self.compat == "binarised"

    @property
    def _searches(self) -> bool:
        """Whether steps that lower the loss are taken back."""
        return self.compat == "imtiaz2022"

    @property
    def notes(self) -> tuple[str, ...]:
        """Whose form it is."""
        return (f"compat {self.compat}",) if self.compat else ("robust0's own form",)

    def passes(self, threat: Threat, image_shape: tuple[int, int, int], classes: int) -> int:  # noqa: ARG002
        """A gradient at the start and at each iterate but the last, which is only judged."""
        return 2 * self.steps + 1

    def start(self, rows: Rows) -> SAIFState:
        """Nothing painted, for a look at the clean image; or random sites in random colours."""
        clean = rows.threat.view(rows.images)
        weight, magnitude = torch.zeros_like(clean[:, 0]), torch.zeros_like(clean)
        if self.origin == "random":
            zero = torch.zeros_like(rows.ids)
            keys = rows.stream.uniform(rows.ids, zero, clean.shape[2], _SITES)
            weight = top_mask(keys, rows.k).to(clean.dtype)
            draw = rows.stream.uniform(rows.ids, zero, clean[0].numel(), _MAGNITUDES)
            magnitude = torch.clamp(2 * draw.view_as(clean) - 1, -clean, 1 - clean)
        kept = slice(None) if self._searches else slice(0)
        return SAIFState(
            **begin(rows),
            weight=weight,
            magnitude=magnitude,
            halvings=torch.ones_like(clean[:, 0, 0]),
            loss=torch.full_like(clean[:, 0, 0], -torch.inf),
            taken=torch.zeros_like(rows.ids),
            old_weight=torch.zeros_like(weight[:, kept]),
            old_magnitude=torch.zeros_like(magnitude[:, :, kept]),
            slope=torch.zeros_like(magnitude[:, :, kept]),
        )

    def wants_gradient(self, state: SAIFState) -> Tensor:
        """All rows but those at their last look."""
        return state.step < self.steps

    def ask(self, state: SAIFState) -> Tensor:
        """The clean image with the k heaviest sites painted."""
        mask = top_mask(state.weight, state.k)[:, None]
        return state.image(torch.addcmul(state.clean, state.magnitude, mask.float()).clamp_(0, 1))

    def tell(self, state: SAIFState, reply: Reply) -> Tensor:
        """One Frank-Wolfe step; the first one, from the clean image, goes all the way."""
        if reply.gradient is not None:
            loss = self.objective(state, reply.logits)
            if self._searches:
                self._search(state, reply.gradient, loss)
            else:
                # DEVIATES from the paper: a too long step is answered by a shorter one next time
                # instead of by a line search that costs passes; and a good one by a longer one,
                # without which every row soon stands still.
                change = (loss < state.loss).float() - (loss > state.loss).float()
                state.halvings = (state.halvings + change).clamp(min=1)
                state.loss = loss
                self._step(state, reply.gradient)
                state.taken = state.taken + 1
        state.step = state.step + 1
        return state.step > self.steps

    def _search(self, state: SAIFState, slope: Tensor, loss: Tensor) -> None:
        """Keep the step under trial unless it lowered the loss; else halve it."""
        kept = loss >= state.loss
        state.old_weight = torch.where(kept[:, None], state.weight, state.old_weight)
        state.old_magnitude = torch.where(kept[:, None, None], state.magnitude, state.old_magnitude)
        state.slope = torch.where(kept[:, None, None], slope, state.slope)
        # Where the clean image's slope leads is kept in any case.
        state.loss = torch.where(kept & (state.taken > 0), loss, state.loss)
        state.taken = state.taken + kept.to(state.taken.dtype)
        state.halvings = state.halvings + (~kept).float()
        state.weight, state.magnitude = state.old_weight.clone(), state.old_magnitude.clone()
        self._step(state, state.slope, -1)

    def _step(self, state: SAIFState, slope: Tensor, offset: int = 0) -> None:
        step = state.taken + offset
        first = (step == 0) & (self.origin == "gradient")
        if self.compat:
            # On the unit ball, and only where the mask lets the gradient through.
            reached = slope.sign() * (state.weight > 0)[:, None]
            away = torch.where(first[:, None, None], slope.sign(), reached) - state.magnitude
        else:
            # The mask weighs the magnitudes' gradient by something positive: its sign is the
            # slope's. Where there is no slope nothing moves.
            corner = corners(state.clean, slope) - state.clean
            away = (corner - state.magnitude) * slope.sign().abs()
        count = step + (self.origin == "random")
        length = count.clamp(min=1).rsqrt()
        if not self._rounds:
            length = torch.exp2(-state.halvings) * length
        length = torch.where(first, 1.0, length)[:, None]
        # The first gain is that of the vertices themselves, later ones that of the magnitudes held.
        held = torch.addcmul(state.magnitude, away, first.float()[:, None, None])
        gain = (slope * held).sum(dim=1)
        chosen = top_mask(gain, state.k)
        if not self._rounds:
            chosen = chosen & (gain > 0)
        state.weight = torch.lerp(state.weight, chosen.float(), length)
        if self._rounds:
            state.weight = top_mask(state.weight, state.k).float()
        moved = torch.addcmul(state.magnitude, away, length[:, None])
        state.magnitude = torch.clamp(moved, -state.clean, 1 - state.clean)
