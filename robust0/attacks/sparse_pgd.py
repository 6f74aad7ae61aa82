"""Sparse-PGD [Zhong24]: gradient steps on where to paint and on what to paint, both variants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Gt

from robust0.attacks.base import Attack, AttackName, Efforts, Reply, Rows, State, begin
from robust0.lazy import torch
from robust0.losses import adaptive, cross_entropy, margin
from robust0.registry import setting
from robust0.threats.sparse import top_mask

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.threats import Threat

_START, _REDRAW = 0, 1  # lanes of the random stream
_SMALLEST = 2.0**-126  # the smallest normal float32


@dataclass(slots=True, kw_only=True)
class SparsePGDState(State):
    """Magnitudes, mask logits and the current support of each row."""

    magnitude: Tensor  # (B, g, S) within [-x, 1 - x]
    logits: Tensor  # (B, S)
    mask: Tensor  # (B, S) bool, exactly k ones
    stalled: Tensor  # (B,) updates that left the support as it was


@dataclass(frozen=True, slots=True, kw_only=True)
class SparsePGD(Attack[SparsePGDState]):
    """Climb the loss over a continuous mask and magnitudes, evaluating the k top sites.

    The projected variant moves the magnitudes of the selected sites only, the unprojected one moves
    all of them, so that a site is already dressed when the mask reaches it. Every image asked about
    differs from the clean one in at most k sites.
    """

    kind: ClassVar[str] = "sparse-pgd"
    revision: ClassVar[int] = 1
    efforts: ClassVar[Efforts] = {
        "smoke": {"steps": 10},
        "quick": {"steps": 100},
        "standard": {"steps": 300},
        "paper": {"steps": 10_000},
    }
    configured: ClassVar[tuple[AttackName, ...]] = (
        AttackName("sparse-pgd-p", rank=4, params={"projected": True}),
        AttackName("sparse-pgd-u", rank=3, params={"projected": False}),
    )

    steps: Annotated[int, Gt(0)] = setting(100, "updates of mask and magnitude")
    projected: bool = setting(
        True,
        "gradient of the magnitudes through the projected mask",
        "[Zhong24]",
    )
    alpha: Annotated[float, Gt(0)] = setting(0.25, "step of the magnitudes", "[Zhong24]")
    beta: Annotated[float, Gt(0)] = setting(
        0.25, "step of the mask, times the root of the number of pixels", "[Zhong24]"
    )
    patience: Annotated[int, Gt(0)] = setting(
        3, "unchanged masks before a mask is drawn anew", "[Zhong24]"
    )
    loss: Literal["ce", "margin", "adaptive"] = setting(
        "ce", "what the attack climbs; adaptive: the margin where it is small, else ce", "[Zhong24]"
    )
    reinit: Literal["consecutive", "cumulative"] = setting(
        "consecutive", "whether unchanged masks are counted in a row or in all"
    )
    compat: Literal["icml2024", "tpami2025"] | None = setting(
        None, "behave as this release of the authors"
    )

    def __post_init__(self) -> None:
        """What ``compat`` implies is what records say."""
        if self.compat:
            object.__setattr__(self, "reinit", "cumulative")
            object.__setattr__(self, "loss", "ce" if self._stale else "adaptive")

    @property
    def _stale(self) -> bool:
        """Whether a new mask is moved by the old one's gradient before it is looked at."""
        return self.compat == "icml2024"

    @property
    def notes(self) -> tuple[str, ...]:
        """Marks runs that imitate the released code."""
        return (f"compat {self.compat}",) if self.compat else ()

    def passes(self, threat: Threat, image_shape: tuple[int, int, int], classes: int) -> int:  # noqa: ARG002
        """One forward at the start, then a forward and a backward per step."""
        return 2 * self.steps + 1

    def start(self, rows: Rows) -> SparsePGDState:
        """Random magnitudes clipped into the box and k random sites."""
        clean = rows.threat.view(rows.images)
        count, groups, sites = clean.shape
        zero = torch.zeros_like(rows.ids)
        draw = rows.stream.uniform(rows.ids, zero, groups * sites, _START).view_as(clean)
        logits = rows.stream.normal(rows.ids, zero, sites, _REDRAW)
        return SparsePGDState(
            **begin(rows),
            magnitude=torch.clamp(2 * draw - 1, -clean, 1 - clean),
            logits=logits,
            mask=top_mask(logits, rows.k),
            stalled=torch.zeros(count, dtype=torch.int64, device=clean.device),
        )

    def wants_gradient(self, state: SparsePGDState) -> Tensor:
        """All rows but those at their last look or about to redraw a stuck mask."""
        unfinished = state.step < self.steps
        return unfinished if self._stale else unfinished & (state.stalled < self.patience)

    def ask(self, state: SparsePGDState) -> Tensor:
        """The clean image with the selected sites painted."""
        painted = (state.clean + state.magnitude).clamp(0, 1)
        return state.image(torch.where(state.mask[:, None], painted, state.clean))

    def objective(self, state: SparsePGDState, logits: Tensor) -> Tensor:
        """Cross entropy, or the negative margin, which does not vanish for confident models."""
        if self.loss == "ce":
            return cross_entropy(logits, state.labels)
        if self.loss == "margin":
            return -margin(logits, state.labels)
        return adaptive(logits, state.labels, state.labels)

    def tell(self, state: SparsePGDState, reply: Reply) -> Tensor:
        """Step along the gradient; rows whose mask is stuck got none and draw a new mask."""
        if reply.gradient is not None:
            self._climb(state, reply.gradient)
        elif not self._stale:
            # A new mask is looked at before anything moves it, as in the release of 2025.
            self._redraw(state)
        state.step = state.step + 1
        return state.step > self.steps

    def _climb(self, state: SparsePGDState, slope: Tensor) -> None:
        # [Zhong24] The mask's gradient is dense: a site outside the top k earns its way in by what
        # its own magnitude would do there. Projection counts as the identity on sigmoid(logits).
        # In float32 torch rounds the last entries of a tensor differently from those before them.
        weight = state.logits.double().sigmoid().float()
        if not self.compat:
            # DEVIATES from the releases, whose masks rest where a confident model's slope is small.
            slope = slope / slope.abs().amax(dim=(1, 2), keepdim=True).clamp(min=_SMALLEST)
        mask_slope = (slope * state.magnitude).sum(dim=1) * weight * (1 - weight)
        norm = mask_slope.norm(dim=1, keepdim=True)
        length = self.beta * state.logits.shape[1] ** 0.5
        step = torch.where(norm < 2e-10, 0.0, length / (norm + 1e-10))
        # sigmoid > 0, so the sign of the unprojected gradient is the sign of the slope everywhere.
        direction = slope.sign()
        if self.projected:
            direction = direction * state.mask[:, None]
        if self._stale:
            self._redraw(state)  # the released code then takes the old mask's step from the new one
        state.logits = state.logits + step * mask_slope
        state.magnitude = torch.clamp(
            state.magnitude + self.alpha * direction, -state.clean, 1 - state.clean
        )
        mask = top_mask(state.logits, state.k)
        same = (mask == state.mask).all(dim=1)
        if state.k == state.logits.shape[1]:
            same = torch.zeros_like(same)  # there is no other mask to draw
        # DEVIATES from the releases, where the count of a row also depends on its neighbours.
        kept = state.stalled if self.reinit == "cumulative" else 0
        state.stalled = torch.where(same, state.stalled + 1, kept)
        state.mask = mask

    def _redraw(self, state: SparsePGDState) -> None:
        stuck = state.stalled >= self.patience
        fresh = state.stream.normal(state.ids, state.step + 1, state.logits.shape[1], _REDRAW)
        state.logits = torch.where(stuck[:, None], fresh, state.logits)
        state.mask = torch.where(stuck[:, None], top_mask(state.logits, state.k), state.mask)
        state.stalled = torch.where(stuck, 0, state.stalled)
