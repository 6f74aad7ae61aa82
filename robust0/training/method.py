"""A training method is four choices: noise, labels, inner attack, objective."""

from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from robust0.models.fast.oracle import frozen
from robust0.rng import Stream
from robust0.training.inner import InnerAttack, Lesson
from robust0.training.labels import LabelSource
from robust0.training.noise import InputNoise, NoNoise
from robust0.training.objectives import Answers, Objective


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in training a step is: names every random draw and the state of soft labels."""

    seed: int
    epoch: int
    step: int  # optimiser steps since the start of training
    progress: float  # epoch / epochs, 0-based

    def stream(self, purpose: str) -> Stream:
        """Draws keyed by (seed, epoch); callers add the image id."""
        return Stream.of("train", purpose, self.seed, self.epoch)

    def coin(self) -> bool:
        """The choice between the projected and the unprojected gradient, keyed by (seed, step)."""
        stream = Stream.of("train", "projected", self.seed)
        word = stream.words(torch.zeros(1, dtype=torch.int64), torch.tensor([self.step]), 1)
        return int(word.item()) % 2 == 1


@dataclass(frozen=True, slots=True)
class Micro:
    """One micro-batch: augmented images in [0, 1], classes, image ids, positions in the set."""

    images: Tensor
    labels: Tensor
    ids: Tensor
    rows: Tensor


@dataclass(frozen=True, slots=True)
class StepResult:
    """The loss of a micro-batch, its named parts, and how many predictions were right."""

    loss: Tensor
    parts: dict[str, Tensor]
    clean_hits: Tensor | None
    adversarial_hits: Tensor | None


@dataclass(frozen=True, slots=True)
class Method:
    """The composition; frozen, the only memory is the label source's."""

    noise: InputNoise
    labels: LabelSource
    inner: InnerAttack
    objective: Objective
    attack_labels: Literal["soft", "hard"] = "soft"
    observe: Literal["noisy", "clean", "adversarial"] = "noisy"

    def step(
        self, model: nn.Module, forward: nn.Module, batch: Micro, moment: Moment
    ) -> StepResult:
        """The loss of one micro-batch.

        ``model`` is the bare network (attacked in eval mode), ``forward`` what is trained through:
        the same, or its distributed or compiled wrapper.
        """
        images = self.noise(batch.images, batch.ids, moment.stream("noise"))
        adversarial = None
        if self.objective.needs_adversarial:
            target = self.labels.current(batch.rows)
            if self.attack_labels == "hard":
                target = torch.nn.functional.one_hot(batch.labels, target.shape[1]).to(target)
            lesson = Lesson(
                images, target, batch.labels, batch.ids, moment.stream("inner"), moment.coin()
            )
            adversarial = self.inner(model, lesson)
        # Two forwards in this order, never one of both: batch statistics differ, and the running
        # ones end with the adversarial batch (ALGORITHMS 9.6).
        answers = Answers(
            clean=forward(images).float() if self.objective.needs_clean else None,
            adversarial=forward(adversarial).float() if adversarial is not None else None,
        )
        seen = self._observed(model, batch, answers) if self.labels.learned() is not None else None
        target, weight = self.labels.observe(batch.rows, seen, moment.progress)
        parts = self.objective(answers, target, weight)
        return StepResult(
            loss=torch.stack(list(parts.values())).sum(),
            parts={name: part.detach() for name, part in parts.items()},
            clean_hits=_hits(answers.clean, batch.labels),
            adversarial_hits=_hits(answers.adversarial, batch.labels),
        )

    def _observed(self, model: nn.Module, batch: Micro, answers: Answers) -> Tensor:
        """The predictions soft labels learn from."""
        if self.observe == "clean" and not (
            isinstance(self.noise, NoNoise) and answers.clean is not None
        ):
            # One more forward, without noise; in eval mode, so that no statistics move.
            with frozen(model), torch.no_grad():
                return cast("Tensor", model(batch.images))
        seen = answers.adversarial if self.observe == "adversarial" else answers.clean
        if seen is None:
            raise ValueError(f"this objective has no {self.observe} forward to learn labels from")
        return seen


def _hits(logits: Tensor | None, labels: Tensor) -> Tensor | None:
    return None if logits is None else (logits.detach().argmax(dim=1) == labels).sum()
