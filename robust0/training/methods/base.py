"""A method owns the step: it is given a batch and decides how often the weights move, and by what.

The loop owns data, clock, processes and snapshots. ``update(loss)`` is its hand: it runs ``loss``
over the micro-batches of the step, goes backward, and moves the weights once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from robust0.lazy import torch
from robust0.registry import Registry
from robust0.training.methods.inner import InnerAttack, Lesson, NoAttack
from robust0.training.methods.noise import InputNoise, NoNoise
from robust0.training.methods.objectives import Answers, Objective

if TYPE_CHECKING:
    from torch import Tensor, nn

    from robust0.models.voting import Certifiable
    from robust0.rng import Stream
    from robust0.threats import Threat
    from robust0.training.methods.labels import Forward, Targets


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in training a step is: names every random draw and the state of soft labels."""

    seed: int
    epoch: int
    step: int  # batches since the start of training
    progress: float  # epoch / epochs, 0-based

    def stream(self, purpose: str) -> Stream:
        """Draws keyed by (seed, epoch); callers add the image id."""
        from robust0.rng import Stream

        return Stream.of("train", purpose, self.seed, self.epoch)

    def coin(self) -> bool:
        """The choice between the projected and the unprojected gradient, keyed by (seed, step)."""
        from robust0.rng import Stream

        stream = Stream.of("train", "projected", self.seed)
        word = stream.words(torch.zeros(1, dtype=torch.int64), torch.tensor([self.step]), 1)
        return int(word.item()) % 2 == 1


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Augmented images in [0, 1], classes, image ids, positions in the set and in the batch."""

    images: Tensor
    labels: Tensor
    ids: Tensor
    rows: Tensor  # in the training set
    places: Tensor  # among the images of this step, over all micro-batches and processes


@dataclass(frozen=True, slots=True)
class StepBatch:
    """This process's micro-batches of one step.

    ``model`` is the bare network (attacked in eval mode), ``forward`` what is trained through: the
    same, or its distributed or compiled wrapper.
    """

    model: nn.Module
    forward: nn.Module
    micros: tuple[MicroBatch, ...]
    size: int  # images of the step, over all micro-batches and processes
    moment: Moment


@dataclass(frozen=True, slots=True)
class StepResult:
    """The loss of a micro-batch, its named parts, and how many predictions were right."""

    loss: Tensor
    parts: dict[str, Tensor]
    clean_hits: Tensor | None
    adversarial_hits: Tensor | None


Loss = Callable[[MicroBatch], StepResult]
Update = Callable[[Loss], None]


@dataclass(slots=True, eq=False)
class Method:
    """The plain step: noise, attack, forwards, targets, loss; one update per batch.

    Methods with a step of their own subclass it. What a method remembers beyond a step is in
    ``state_dict``: saved in snapshots, shared between processes, restored bit by bit.
    """

    noise: InputNoise
    targets: Targets
    learns_from: Forward | None  # the forward that targets learn from
    inner: InnerAttack
    objective: Objective
    threat: Threat  # the training budget

    @property
    def updates(self) -> int:
        """How often ``train`` calls ``update``; epochs are divided by it."""
        return 1

    def train(self, batch: StepBatch, update: Update) -> None:
        """Learn from a batch: ``update`` moves the weights against the loss it is given."""
        update(lambda micro: self.loss(batch, micro))

    def loss(self, batch: StepBatch, micro: MicroBatch) -> StepResult:
        """The loss of one micro-batch."""
        images = self.noise(micro.images, micro.ids, batch.moment.stream("noise"), self.threat)
        adversarial = None
        if self.objective.needs_adversarial:
            adversarial = self.adversarial(batch, micro, images)
        # Two forwards in this order, never one of both: batch statistics differ, and the running
        # ones end with the adversarial batch, as in the release of [Zhong24].
        forward = batch.forward
        clean = forward(images).float() if self.objective.needs_clean else None
        attacked = forward(adversarial).float() if adversarial is not None else None
        seen = None
        if self.targets.learned() is not None:
            seen = self._observed(batch.model, micro, clean, attacked)
        target, weight = self.targets.observe(micro.rows, seen, batch.moment.progress)
        parts = self.objective(Answers(clean, attacked, micro.labels, target, weight))
        return StepResult(
            loss=torch.stack(list(parts.values())).sum(),
            parts={name: part.detach() for name, part in parts.items()},
            clean_hits=_hits(clean, micro.labels),
            adversarial_hits=_hits(attacked, micro.labels),
        )

    def adversarial(self, batch: StepBatch, micro: MicroBatch, images: Tensor) -> Tensor:
        """The images to train on in place of the (noisy) ``images``."""
        lesson = Lesson(
            images, self.targets.current(micro.rows), micro.labels, micro.ids,
            batch.moment.stream("inner"), batch.moment.coin(), self.threat,
        )  # fmt: skip
        return self.inner(batch.model, lesson)

    def shown(self, images: Tensor, ids: Tensor, stream: Stream) -> Tensor:  # noqa: ARG002
        """What the network is shown of images; usually the images."""
        return images

    def classifier(
        self,
        network: nn.Module,  # noqa: ARG002
        image_shape: tuple[int, int, int],  # noqa: ARG002
        classes: int,  # noqa: ARG002
    ) -> Certifiable | None:
        """What is certified after each epoch in place of a probe; None: the network is attacked."""
        return None

    def watched(self) -> InnerAttack | None:
        """The attack that the overfitting watch measures; None where training has none."""
        return None if isinstance(self.inner, NoAttack) else self.inner

    def state_dict(self) -> dict[str, Tensor]:
        """Everything remembered beyond a step; the tensors themselves, not copies."""
        table = self.targets.learned()
        return {} if table is None else {"labels": table}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a remembered state."""
        for name, tensor in Method.state_dict(self).items():
            tensor.copy_(state[name])

    def touched(self, batch: StepBatch) -> dict[str, Tensor]:
        """By name, the rows of the state that this process changed; as many in every process."""
        rows = torch.cat([micro.rows for micro in batch.micros])
        return {} if self.targets.learned() is None else {"labels": rows}

    def _observed(
        self, model: nn.Module, micro: MicroBatch, clean: Tensor | None, attacked: Tensor | None
    ) -> Tensor:
        """The predictions soft labels learn from."""
        from robust0.models.fast.oracle import frozen

        if self.learns_from == "clean" and not (
            isinstance(self.noise, NoNoise) and clean is not None
        ):
            # One more forward, without noise; in eval mode, so that no statistics move.
            with frozen(model), torch.no_grad():
                return cast("Tensor", model(micro.images))
        seen = attacked if self.learns_from == "adversarial" else clean
        if seen is None:
            raise ValueError(f"this objective has no {self.learns_from} forward to learn from")
        return seen


def _hits(logits: Tensor | None, labels: Tensor) -> Tensor | None:
    return None if logits is None else (logits.detach().argmax(dim=1) == labels).sum()


class StepKind(Protocol):
    """The settings of a way to take a step; ``attacks``: it makes the adversarial images itself."""

    kind: ClassVar[str]
    attacks: ClassVar[bool]

    def build(self, plain: Method) -> Method:
        """The method that takes the steps of a run, with the parts of the plain one."""


@dataclass(frozen=True, slots=True)
class PlainStep:
    """One attack, one update per batch."""

    kind: ClassVar[str] = "plain"
    source: ClassVar[str] = "Sec. 5.1"
    attacks: ClassVar[bool] = False

    def build(self, plain: Method) -> Method:
        """The plain step itself."""
        return plain


STEPS: Registry[StepKind] = Registry("step", [PlainStep], group="robust0.steps")
