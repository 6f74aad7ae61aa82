"""One run of the training attack: Sparse-PGD for one or a few steps on a whole batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robust0.attacks.base import Reply, Rows
from robust0.losses import adaptive, cross_entropy, divergence
from robust0.training.methods.labels import one_hot

if TYPE_CHECKING:
    from robust0.attacks.sparse_pgd import SparsePGD, SparsePGDState
    from robust0.training.methods.inner import Lesson, SparsePGDInner


class Climb:
    """One run of the inner attack; the rows still climbing shrink as images fall."""

    def __init__(
        self, settings: SparsePGDInner, attack: SparsePGD, model: nn.Module, lesson: Lesson
    ) -> None:
        self.settings, self.attack, self.model, self.lesson = settings, attack, model, lesson
        self.target = lesson.target
        if settings.labels == "hard":
            self.target = one_hot(lesson.labels, lesson.target.shape[1])
        self.result = lesson.images.clone()
        self.best = torch.full((len(lesson.images),), -torch.inf, device=lesson.images.device)
        self.rows = torch.arange(len(lesson.images), device=lesson.images.device)
        self._kept: Tensor | None = None

    def run(self) -> Tensor:
        """The images to train on."""
        self._look_at_clean()
        state = self.attack.start(self._rows())
        for step in range(self.settings.steps):
            if len(self.rows) == 0:
                return self.result
            images = self.attack.ask(state)
            logits, slope = self._gradient(images)
            if step:  # the random start gives a gradient only, as in the release of [Zhong24]
                state = self._keep(state, images, logits)
            slope = slope[self._kept] if self._kept is not None else slope
            self._tell(state, logits if self._kept is None else logits[self._kept], slope)
        images = self.attack.ask(state)
        if self.settings.select == "last":
            self.result[self.rows] = images
        else:
            with torch.no_grad():
                self._keep(state, images, self.model(images).float())
        return self.result

    def _look_at_clean(self) -> None:
        """The clean prediction, where the settings depend on it."""
        settings = self.settings
        if settings.loss != "kl" and not settings.skips and settings.select == "last":
            return
        with torch.no_grad():
            clean = self.model(self.lesson.images).float()
        if settings.loss == "kl":
            self.target = clean
        if settings.select == "best":
            self.best = self._worth(clean, self.target)
        if settings.skips:
            self.rows = self.rows[clean.argmax(dim=1) == self.lesson.labels]

    def _rows(self) -> Rows:
        lesson, rows = self.lesson, self.rows
        return Rows(
            lesson.images[rows], lesson.labels[rows], lesson.ids[rows], self.lesson.threat,
            lesson.stream, lesson.target.shape[1],
        )  # fmt: skip

    def _loss(self, logits: Tensor) -> Tensor:
        """What the attack climbs."""
        target = self.target[self.rows]
        if self.settings.loss == "adaptive":
            return adaptive(logits, self.lesson.labels[self.rows], target)
        return self._worth(logits, target)

    def _worth(self, logits: Tensor, target: Tensor) -> Tensor:
        """By what iterates compare: the adaptive loss jumps where it changes form."""
        if self.settings.loss == "kl":
            return divergence(target, logits)
        return cross_entropy(logits, target)

    def _gradient(self, images: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            images = images.detach().requires_grad_()
            logits = self.model(images).float()
            loss = self._loss(logits).sum()
            (slope,) = torch.autograd.grad(loss, images)
        return logits.detach(), self.lesson.threat.view(slope)

    def _keep(self, state: SparsePGDState, images: Tensor, logits: Tensor) -> SparsePGDState:
        """Remember the best image of each row; with early stopping, fallen rows leave."""
        self._kept = None
        if self.settings.select == "last" and not self.settings.stops:
            return state
        fallen = logits.argmax(dim=1) != self.lesson.labels[self.rows]
        loss = self._worth(logits, self.target[self.rows])
        better = loss >= self.best[self.rows]
        if self.settings.stops:
            better = better | fallen
        self.best[self.rows] = torch.where(better, loss, self.best[self.rows])
        self.result[self.rows] = torch.where(
            better[:, None, None, None], images, self.result[self.rows]
        )
        if self.settings.stops and bool(fallen.any()):
            self._kept = (~fallen).nonzero()[:, 0]
            self.rows = self.rows[self._kept]
            return state.take(self._kept)
        return state

    def _tell(self, state: SparsePGDState, logits: Tensor, slope: Tensor) -> None:
        """Rows with a stuck mask redraw it instead of following the gradient."""
        if self.settings.steps <= self.attack.patience:
            self.attack.tell(state, Reply(logits, slope))
            return
        moving = self.attack.wants_gradient(state)
        for rows, gradient in ((moving, slope[moving]), (~moving, None)):
            index = rows.nonzero()[:, 0]
            if len(index):
                part = state.take(index)
                self.attack.tell(part, Reply(logits[index], gradient))
                state.put(index, part)
