"""The attack inside a training step: its settings, and what it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from robust0.registry import OWN, Count, Positive, Registry, setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from robust0.rng import Stream
    from robust0.threats import Threat

_MULTI_STEP = "[Zhong24] multi-step training"
_RELEASE = "[Zhong25] release: one-step training"
_ONE_STEP = "source: robust0, from Table 3"
Gradient = Literal["projected", "unprojected", "rand"]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What the inner attack is given: (noisy) images, targets, and the names of its draws."""

    images: Tensor  # (B, C, H, W)
    target: Tensor  # (B, K) what the label source says
    labels: Tensor  # (B,) true classes
    ids: Tensor  # (B,)
    stream: Stream  # of this seed and epoch
    projected: bool  # this step's coin, for gradient="rand"
    threat: Threat  # the training budget


class InnerAttack(Protocol):
    """Turns a lesson into adversarial images; leaves the model as it found it."""

    kind: ClassVar[str]

    def __call__(self, model: nn.Module, lesson: Lesson) -> Tensor:
        """(B, C, H, W) images to train on."""


@dataclass(frozen=True, slots=True)
class NoAttack:
    """No attack in training."""

    kind: ClassVar[str] = "none"
    source: ClassVar[str] = OWN

    def __call__(self, model: nn.Module, lesson: Lesson) -> Tensor:  # noqa: ARG002
        """The images themselves."""
        return lesson.images


@dataclass(frozen=True, slots=True)
class SparsePGDInner:
    """A few steps of Sparse-PGD in eval mode [Zhong24]."""

    kind: ClassVar[str] = "sparse-pgd"
    source: ClassVar[str] = "Sec. 5.1"
    steps: Count = setting(1, "updates of mask and magnitude per batch", "Sec. 5.1")
    alpha: Positive = setting(1.0, "step of the magnitudes", _RELEASE)
    beta: Positive = setting(
        1.0, "step of the mask, times the root of the number of pixels", _RELEASE
    )
    patience: Count = setting(10, "unchanged masks before a mask is drawn anew", "[Zhong24]")
    gradient: Gradient = setting(
        "rand", "gradient of the magnitudes; rand: a fair choice per batch", "[Zhong24]"
    )
    select: Literal["last", "best"] = setting(
        "last", "iterate that is trained on: the last, or the one of highest loss", _ONE_STEP
    )
    early_stopping: bool = setting(
        False, "skip misclassified images and stop at the first success, both", _ONE_STEP
    )
    skip_misclassified: bool | None = setting(
        None, "return images clean that are misclassified already; null: as early_stopping"
    )
    stop_early: bool | None = setting(
        None, "stop an image at its first misclassification; null: as early_stopping"
    )
    loss: Literal["ce", "adaptive", "kl"] = setting(
        "ce",
        "what the attack maximises: CE to the label, adaptive (the negative margin where it is "
        "below 0.5, CE elsewhere) or KL to the start's prediction",
        "Sec. 5.1",
    )
    labels: Literal["soft", "hard"] = setting(
        "soft", "labels of the CE: the label source's present targets or the true class", "Alg. 3"
    )

    @classmethod
    def preset(cls, given: Mapping[str, object]) -> dict[str, tuple[object, str]]:
        """Defaults, with their sources, that follow from the number of steps."""
        steps = given.get("steps")
        if isinstance(steps, bool) or not isinstance(steps, int) or steps <= 1:
            return {}
        return {
            "steps": (steps, "Sec. 5.2"),
            "alpha": (0.25, "[Zhong24]"),
            "beta": (0.25, "[Zhong24]"),
            "select": ("best", _MULTI_STEP),
            "early_stopping": (True, _MULTI_STEP),
        }

    @property
    def skips(self) -> bool:
        """Whether misclassified images stay clean."""
        given = self.skip_misclassified
        return self.early_stopping if given is None else given

    @property
    def stops(self) -> bool:
        """Whether an image leaves at its first misclassification."""
        return self.early_stopping if self.stop_early is None else self.stop_early

    def __call__(self, model: nn.Module, lesson: Lesson) -> Tensor:
        """Adversarial images within the training budget of the lesson's images."""
        from robust0.attacks.sparse_pgd import SparsePGD
        from robust0.models.fast.oracle import frozen
        from robust0.training.methods.climb import Climb

        projected = lesson.projected if self.gradient == "rand" else self.gradient == "projected"
        attack = SparsePGD(
            steps=self.steps, projected=projected, alpha=self.alpha, beta=self.beta,
            patience=self.patience,
        )  # fmt: skip
        with frozen(model):
            return Climb(self, attack, model, lesson).run()


INNER_ATTACKS: Registry[InnerAttack] = Registry("inner attack", [NoAttack, SparsePGDInner])
