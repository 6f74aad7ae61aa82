"""What training descends: pure functions of clean and adversarial logits, targets and weights."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from robust0.losses import cross_entropy, divergence


@dataclass(frozen=True, slots=True)
class Answers:
    """The train-mode logits of a step; None where the objective does not need that forward."""

    clean: Tensor | None
    adversarial: Tensor | None

    def both(self) -> tuple[Tensor, Tensor]:
        """Clean and adversarial logits, where the objective asked for both."""
        if self.clean is None or self.adversarial is None:
            raise ValueError("this objective needs clean and adversarial logits")
        return self.clean, self.adversarial


class Objective(Protocol):
    """Says which forwards it needs and turns them into a loss with named parts."""

    needs_clean: ClassVar[bool]
    needs_adversarial: ClassVar[bool]

    def __call__(self, answers: Answers, target: Tensor, weight: Tensor) -> dict[str, Tensor]:
        """The named parts whose sum is the loss of this micro-batch."""


def weighted_cross_entropy(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Cross entropy averaged with per-image weights, normalised within the micro-batch."""
    return (weight * cross_entropy(logits, target)).sum() / weight.sum()


@dataclass(frozen=True, slots=True)
class CleanObjective:
    """Standard training."""

    needs_clean: ClassVar[bool] = True
    needs_adversarial: ClassVar[bool] = False

    def __call__(self, answers: Answers, target: Tensor, weight: Tensor) -> dict[str, Tensor]:
        """Cross entropy on the (noisy) images."""
        if answers.clean is None:
            raise ValueError("the clean objective needs clean logits")
        return {"clean": weighted_cross_entropy(answers.clean, target, weight)}


@dataclass(frozen=True, slots=True)
class AdversarialObjective:
    """sAT [Zhong24]: cross entropy on the adversarial images alone."""

    needs_clean: ClassVar[bool] = False
    needs_adversarial: ClassVar[bool] = True

    def __call__(self, answers: Answers, target: Tensor, weight: Tensor) -> dict[str, Tensor]:
        """Cross entropy on the adversarial images."""
        if answers.adversarial is None:
            raise ValueError("the adversarial objective needs adversarial logits")
        return {"adversarial": weighted_cross_entropy(answers.adversarial, target, weight)}


@dataclass(frozen=True, slots=True)
class TradeoffObjective:
    """(1 - alpha) clean + alpha adversarial cross entropy [Fast-LS, Sec. 5]."""

    needs_clean: ClassVar[bool] = True
    needs_adversarial: ClassVar[bool] = True
    alpha: float = 0.75

    def __call__(self, answers: Answers, target: Tensor, weight: Tensor) -> dict[str, Tensor]:
        """Both cross entropies, scaled."""
        clean, adversarial = answers.both()
        return {
            "clean": (1 - self.alpha) * weighted_cross_entropy(clean, target, weight),
            "adversarial": self.alpha * weighted_cross_entropy(adversarial, target, weight),
        }


@dataclass(frozen=True, slots=True)
class TradesObjective:
    """sTRADES: clean cross entropy plus beta times KL(clean || adversarial) [Fast-LS, Alg. 2]."""

    needs_clean: ClassVar[bool] = True
    needs_adversarial: ClassVar[bool] = True
    beta: float = 6.0

    def __call__(self, answers: Answers, target: Tensor, weight: Tensor) -> dict[str, Tensor]:
        """Both terms are minimised; gradients flow through both arguments of the divergence."""
        clean, adversarial = answers.both()
        return {
            "clean": weighted_cross_entropy(clean, target, weight),
            "divergence": self.beta * divergence(clean, adversarial).mean(),
        }
