"""Training on parts of images, for classifiers that can be certified.

The network never sees a whole image: it is augmented first, then parts of it are taken, so that a
part always looks as it will when the classifier asks about it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from robust0.errors import RecipeError
from robust0.lazy import torch
from robust0.training.methods.base import Method, MicroBatch, StepBatch, StepResult
from robust0.training.methods.objectives import Answers

if TYPE_CHECKING:
    from torch import Tensor, nn

    from robust0.models.classifiers import ClassifierNotes
    from robust0.models.voting import Certifiable
    from robust0.rng import Stream


class PartStep(ABC):
    """The settings of a classifier over parts; ``per_image`` parts of an image make one step."""

    __slots__ = ()
    kind: ClassVar[str]
    attacks: ClassVar[bool] = False

    @abstractmethod
    def notes(self) -> ClassifierNotes:
        """The classifier, as a checkpoint records it."""

    @abstractmethod
    def parts(self, images: Tensor, ids: Tensor, stream: Stream) -> Tensor:
        """(B, n, C + 1, h, w) random parts of images (B, C, H, W)."""

    def build(self, plain: Method) -> Method:
        """The method with the parts of the plain one; it knows no attack."""
        if plain.objective.needs_adversarial:
            raise RecipeError(
                f"training.step {self.kind} trains on parts of clean images, "
                f"and the objective {plain.objective.kind} needs adversarial ones",
                "set training.objective.kind to clean",
            )
        common: dict[str, Any] = {f.name: getattr(plain, f.name) for f in fields(plain)}
        return PartMethod(**common, settings=self)


@dataclass(slots=True, eq=False, kw_only=True)
class PartMethod(Method):
    """One update per batch, against the mean loss over the parts of its images."""

    settings: PartStep

    def shown(self, images: Tensor, ids: Tensor, stream: Stream) -> Tensor:
        """(B * n, C + 1, h, w): the parts of the first image, then those of the second, ..."""
        parts = self.settings.parts(images, ids, stream).flatten(0, 1)
        if images.is_contiguous(memory_format=torch.channels_last):
            return parts.contiguous(memory_format=torch.channels_last)
        return parts

    def loss(self, batch: StepBatch, micro: MicroBatch) -> StepResult:
        """The objective of every part, with the target of its image."""
        stream = batch.moment.stream
        images = self.noise(micro.images, micro.ids, stream("noise"), self.threat)
        logits = batch.forward(self.shown(images, micro.ids, stream("parts"))).float()
        each = len(logits) // len(images)
        together = logits.detach().log_softmax(dim=1).view(-1, each, logits.shape[1])
        together = together.logsumexp(dim=1)  # the log of the sum of probabilities
        target, weight = self.targets.observe(micro.rows, together, batch.moment.progress)
        labels, target, weight = (
            tensor.repeat_interleave(each, dim=0) for tensor in (micro.labels, target, weight)
        )
        named = self.objective(Answers(logits, None, labels, target, weight))
        return StepResult(
            loss=torch.stack(list(named.values())).sum(),
            parts={name: part.detach() for name, part in named.items()},
            clean_hits=(together.argmax(dim=1) == micro.labels).sum(),
            adversarial_hits=None,
        )

    def classifier(
        self, network: nn.Module, image_shape: tuple[int, int, int], classes: int
    ) -> Certifiable | None:
        """The classifier around the network."""
        return self.settings.notes().wrap(network, image_shape, classes)


def hidden(images: Tensor, shown: Tensor, each: int) -> Tensor:
    """(B, n, C + 1, H, W) from (B * n, H * W) bool."""
    from robust0.certificates.partition import hide

    visible = shown.view(len(images), each, 1, *images.shape[2:])
    return hide(images[:, None].expand(-1, each, -1, -1, -1), visible)
