"""Free adversarial training [Shafahi19] for l0: one backward for the weights and the perturbation.

A batch is replayed m times. Each backward moves the weights, and its gradient with respect to the
adversarial images moves the perturbation as Sparse-PGD does; the perturbation stays with its place
in the batch when the next batch comes. Epochs are divided by m, so that the cost is that of
standard training.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from robust0.lazy import torch
from robust0.registry import Count, Positive, setting
from robust0.training.methods.base import STEPS, Method, MicroBatch, StepBatch, Update
from robust0.training.methods.inner import Gradient, InnerAttack, SparsePGDInner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


@STEPS.add
@dataclass(frozen=True, slots=True)
class FreeAT:
    """Replays each batch; one gradient serves weights and perturbation."""

    kind: ClassVar[str] = "free-at"
    source: ClassVar[str] = "[Shafahi19]"
    attacks: ClassVar[bool] = True
    replays: Count = setting(4, "updates per batch; epochs are divided by it")
    alpha: Positive = setting(0.25, "step of the magnitudes", "[Zhong24]")
    beta: Positive = setting(
        0.25, "step of the mask, times the root of the number of pixels", "[Zhong24]"
    )
    gradient: Gradient = setting(
        "rand", "gradient of the magnitudes; rand: a fair choice per batch", "[Zhong24]"
    )

    def build(self, plain: Method) -> Method:
        """The replaying method with the parts of the plain one."""
        parts: dict[str, Any] = {f.name: getattr(plain, f.name) for f in fields(plain)}
        return FreeATMethod(**parts, settings=self)

    def attack(self) -> InnerAttack:
        """The same moves on a model that does not change, for the overfitting watch."""
        return SparsePGDInner(
            steps=self.replays, alpha=self.alpha, beta=self.beta, gradient=self.gradient
        )


@dataclass(slots=True, eq=False, kw_only=True)
class FreeATMethod(Method):
    """A method whose perturbation lives from replay to replay and from batch to batch."""

    settings: FreeAT
    carried: dict[str, Tensor] = field(default_factory=dict)  # by place in the batch
    asked: list[tuple[MicroBatch, Tensor, Tensor]] = field(default_factory=list)

    @property
    def updates(self) -> int:
        """As many as there are replays."""
        return self.settings.replays

    def train(self, batch: StepBatch, update: Update) -> None:
        """Replay the batch; every update also moves the perturbation."""
        if not self.carried:
            self._begin(batch)
        for _ in range(self.settings.replays):
            self.asked.clear()
            update(lambda micro: self.loss(batch, micro))
            for micro, images, painted in self.asked:
                self._move(batch, micro, images, painted)
        self.asked.clear()

    def adversarial(self, batch: StepBatch, micro: MicroBatch, images: Tensor) -> Tensor:  # noqa: ARG002
        """The images under the carried perturbation; their gradient is kept."""
        from robust0.threats.sparse import top_mask

        clean = self.threat.view(images)
        mask = top_mask(self.carried["logits"][micro.places], int(self.threat.budget))
        painted = (clean + self.carried["magnitude"][micro.places]).clamp(0, 1)
        _, channels, height, width = images.shape
        adversarial = self.threat.image(
            torch.where(mask[:, None], painted, clean), (channels, height, width)
        )
        adversarial = adversarial.detach().requires_grad_()
        self.asked.append((micro, images, adversarial))
        return adversarial

    def watched(self) -> InnerAttack | None:
        """Sparse-PGD with as many steps as there are replays."""
        return self.settings.attack()

    def state_dict(self) -> dict[str, Tensor]:
        """Soft labels, if there are any, and the perturbation."""
        # Without super(): dataclass slots make another class of this one.
        return Method.state_dict(self) | self.carried

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The perturbation has no size before the first batch."""
        Method.load_state_dict(self, state)
        names = ("magnitude", "logits")
        self.carried = {name: state[name].clone() for name in names if name in state}

    def touched(self, batch: StepBatch) -> dict[str, Tensor]:
        """The places of this process's images."""
        places = torch.cat([micro.places for micro in batch.micros])
        return Method.touched(self, batch) | dict.fromkeys(self.carried, places)

    def _begin(self, batch: StepBatch) -> None:
        """Random magnitudes and random sites for every place, as Sparse-PGD starts."""
        from robust0.rng import Stream

        images = batch.micros[0].images
        groups, sites = self.threat.shape(images)
        stream = Stream.of("train", "free", batch.moment.seed)
        places = torch.arange(batch.size, device=images.device)
        zero = torch.zeros_like(places)
        draw = stream.uniform(places, zero, groups * sites, 0).view(-1, groups, sites)
        self.carried = {
            "magnitude": 2 * draw - 1,
            "logits": stream.normal(places, zero, sites, 1),
        }

    def _move(
        self, batch: StepBatch, micro: MicroBatch, images: Tensor, adversarial: Tensor
    ) -> None:
        """One step of Sparse-PGD along the gradient that the backward left behind."""
        from robust0.attacks.base import Reply, Rows
        from robust0.attacks.sparse_pgd import SparsePGD
        from robust0.threats.sparse import top_mask

        slope = adversarial.grad
        if slope is None:
            raise ValueError("no gradient reached the adversarial images")
        # A loss scaler may have made it overflow; its size does not matter otherwise.
        slope = self.threat.view(torch.nan_to_num(slope, 0.0, 0.0, 0.0))
        moment, settings = batch.moment, self.settings
        projected = (
            moment.coin() if settings.gradient == "rand" else settings.gradient == "projected"
        )
        attack = SparsePGD(steps=1, projected=projected, alpha=settings.alpha, beta=settings.beta)
        rows = Rows(images, micro.labels, micro.places, self.threat, moment.stream("free"), 0)
        state = attack.start(rows)
        state.logits = self.carried["logits"][micro.places]
        state.mask = top_mask(state.logits, int(self.threat.budget))
        clean = state.clean
        state.magnitude = self.carried["magnitude"][micro.places].clamp(-clean, 1 - clean)
        attack.tell(state, Reply(slope.new_zeros(len(slope), 0), slope))
        self.carried["magnitude"][micro.places] = state.magnitude
        self.carried["logits"][micro.places] = state.logits
