"""Attacks as studies use them: images in, perturbed images out, with the same draws every time."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from robust0.attacks.base import Attack
from robust0.attacks.engine import Outcome, Waiting, search
from robust0.data.imageset import ImageSet
from robust0.errors import ModelError
from robust0.models.fast.oracle import Oracle, checked_finite, frozen
from robust0.rng import Stream
from robust0.threats import Threat
from robust0.training.methods.inner import InnerAttack, Lesson
from robust0.training.methods.labels import one_hot

ROWS = 64  # images per model call


@dataclass(frozen=True, slots=True)
class StudyImages:
    """The images a study is about, on the network's device."""

    images: Tensor  # (N, C, H, W) in [0, 1]
    labels: Tensor  # (N,)
    ids: Tensor  # (N,) what names an image's draws

    @classmethod
    def of(cls, data: ImageSet) -> "StudyImages":
        """All images of a set."""
        return cls(data.images(torch.arange(len(data))), data.labels, data.ids)

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, first: int, last: int) -> "StudyImages":
        """The images of a range of positions."""
        return StudyImages(self.images[first:last], self.labels[first:last], self.ids[first:last])


class Perturber(Protocol):
    """An attack with its threat and its seed."""

    @property
    def label(self) -> str:
        """What tables and figures call it."""

    @property
    def threat(self) -> Threat | None:
        """What it may change; None: nothing."""

    def passes(self, data: StudyImages, classes: int) -> int:
        """The most forward-equivalents it can cost per image."""

    def __call__(self, network: nn.Module, data: StudyImages) -> Tensor:
        """(N, C, H, W) perturbed images; the network is left as it was."""


@dataclass(frozen=True, slots=True)
class Unperturbed:
    """No attack: the clean loss."""

    label: str = "clean"
    threat: Threat | None = None

    def passes(self, data: StudyImages, classes: int) -> int:  # noqa: ARG002
        """Nothing is asked."""
        return 0

    def __call__(self, network: nn.Module, data: StudyImages) -> Tensor:  # noqa: ARG002
        """The images themselves."""
        return data.images


@dataclass(frozen=True, slots=True)
class TrainingAttack:
    """An attack as training runs it, on hard labels.

    Where training tosses a coin per batch between two gradients, images with even ids get one and
    images with odd ids the other, so that an image's perturbation does not depend on its company.
    """

    label: str
    inner: InnerAttack
    threat: Threat
    seed: int = 0

    def passes(self, data: StudyImages, classes: int) -> int:  # noqa: ARG002
        """A forward and a backward per step, and a look at both ends."""
        return 2 * int(getattr(self.inner, "steps", 1)) + 2

    def __call__(self, network: nn.Module, data: StudyImages) -> Tensor:
        """The images that training would see."""
        self.threat.check(data.images)
        result = data.images.clone()
        classes = class_count(network, data)
        tossed = getattr(self.inner, "gradient", None) == "rand"
        even = data.ids % 2 == 0
        for projected in (True, False) if tossed else (True,):
            chosen = even == projected if tossed else torch.ones_like(even)
            for rows in chosen.nonzero()[:, 0].split(ROWS):
                lesson = Lesson(
                    data.images[rows], one_hot(data.labels[rows], classes), data.labels[rows],
                    data.ids[rows], Stream.of("study", self.seed), projected, self.threat,
                )  # fmt: skip
                result[rows] = self.inner(network, lesson)
        return result


@dataclass(frozen=True, slots=True)
class AuditAttack:
    """An attack as audits run it; images that are misclassified already stay as they are."""

    label: str
    name: str
    attack: Attack[Any]
    threat: Threat
    seed: int = 0

    def passes(self, data: StudyImages, classes: int) -> int:
        """What the attack says."""
        channels, height, width = data.images.shape[1:]
        return self.attack.passes(self.threat, (channels, height, width), classes)

    def __call__(self, network: nn.Module, data: StudyImages) -> Tensor:
        """Each image's hit, or else what came closest."""
        self.threat.check(data.images)
        result = data.images.clone()
        place = {image: row for row, image in enumerate(data.ids.tolist())}
        with frozen(network):
            oracle = Oracle(network, ROWS, data.images.device)
            right = checked_finite(oracle.exact(data.images)).argmax(dim=1) == data.labels

            def fetch(positions: Any) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
                at = torch.tensor(positions, device=data.images.device)
                return data.images[at], data.labels[at], data.ids[at]

            waiting = Waiting(right.nonzero()[:, 0].tolist(), fetch)
            for found in search(self.attack, self.name, oracle, waiting, self.threat, self.seed):
                if isinstance(found, Outcome):
                    row = place[found.image]
                    painted = found.attempt.paint(data.images[row].cpu().numpy())
                    result[row] = torch.from_numpy(painted).to(result.device)
        return result


def class_count(network: nn.Module, data: StudyImages) -> int:
    """How many classes the network tells apart; refuses one that cannot classify these images."""
    with frozen(network):
        logits = Oracle(network, 1, data.images.device).exact(data.images[:1])
    if int(data.labels.max()) >= logits.shape[1]:
        raise ModelError(
            f"the model tells {logits.shape[1]} classes apart, the data has a class "
            f"{int(data.labels.max())}",
            "study it on the data it was trained for",
        )
    return logits.shape[1]


def share_right(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images that the network gets right, in float32."""
    with frozen(network):
        logits = checked_finite(Oracle(network, ROWS, images.device).exact(images))
    return (logits.argmax(dim=1) == labels).float().mean().item()
