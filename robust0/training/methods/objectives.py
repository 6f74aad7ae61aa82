"""What training descends: pure functions of clean and adversarial logits, targets and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from robust0.registry import Fraction, Positive, Registry, setting

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Answers:
    """The train-mode logits of a micro-batch and what they should have been.

    Logits are None where the objective does not need that forward.
    """

    clean: Tensor | None  # (B, K)
    adversarial: Tensor | None  # (B, K)
    labels: Tensor  # (B,) true classes
    target: Tensor  # (B, K) what the label source says
    weight: Tensor  # (B,)

    def both(self) -> tuple[Tensor, Tensor]:
        """Clean and adversarial logits, where the objective asked for both."""
        if self.clean is None or self.adversarial is None:
            raise ValueError("this objective needs clean and adversarial logits")
        return self.clean, self.adversarial

    def cross_entropy(self, logits: Tensor | None) -> Tensor:
        """Cross entropy averaged with the images' weights, normalised within the micro-batch."""
        from robust0.losses import cross_entropy

        if logits is None:
            raise ValueError("this objective did not ask for these logits")
        return (self.weight * cross_entropy(logits, self.target)).sum() / self.weight.sum()


class Objective(Protocol):
    """Says which forwards it needs and turns them into a loss with named parts."""

    kind: ClassVar[str]
    needs_clean: ClassVar[bool]
    needs_adversarial: ClassVar[bool]

    def __call__(self, answers: Answers) -> dict[str, Tensor]:
        """The named parts whose sum is the loss of this micro-batch."""


@dataclass(frozen=True, slots=True)
class CleanObjective:
    """Standard training: cross entropy on the (noisy) images."""

    kind: ClassVar[str] = "clean"
    source: ClassVar[str] = "Sec. 5.1"
    needs_clean: ClassVar[bool] = True
    needs_adversarial: ClassVar[bool] = False

    def __call__(self, answers: Answers) -> dict[str, Tensor]:
        """Cross entropy on the (noisy) images."""
        return {"clean": answers.cross_entropy(answers.clean)}


@dataclass(frozen=True, slots=True)
class AdversarialObjective:
    """sAT [Zhong24]: cross entropy on the adversarial images alone."""

    kind: ClassVar[str] = "adversarial"
    source: ClassVar[str] = "Sec. 5.1"
    needs_clean: ClassVar[bool] = False
    needs_adversarial: ClassVar[bool] = True

    def __call__(self, answers: Answers) -> dict[str, Tensor]:
        """Cross entropy on the adversarial images."""
        return {"adversarial": answers.cross_entropy(answers.adversarial)}


@dataclass(frozen=True, slots=True)
class TradeoffObjective:
    """(1 - alpha) clean + alpha adversarial cross entropy [Fast-LS, Sec. 5]."""

    kind: ClassVar[str] = "tradeoff"
    source: ClassVar[str] = "Sec. 5.1"
    needs_clean: ClassVar[bool] = True
    needs_adversarial: ClassVar[bool] = True
    alpha: Fraction = setting(0.75, "weight of the adversarial CE", "App. G")

    def __call__(self, answers: Answers) -> dict[str, Tensor]:
        """Both cross entropies, scaled."""
        clean, adversarial = answers.both()
        return {
            "clean": (1 - self.alpha) * answers.cross_entropy(clean),
            "adversarial": self.alpha * answers.cross_entropy(adversarial),
        }


@dataclass(frozen=True, slots=True)
class TradesObjective:
    """sTRADES: clean cross entropy plus beta times KL(clean || adversarial) [Fast-LS, Alg. 2]."""

    kind: ClassVar[str] = "trades"
    source: ClassVar[str] = "Sec. 5.1"
    needs_clean: ClassVar[bool] = True
    needs_adversarial: ClassVar[bool] = True
    beta: Positive = setting(6.0, "weight of the KL term", "App. G, Table 16")

    def __call__(self, answers: Answers) -> dict[str, Tensor]:
        """Both terms are minimised; gradients flow through both arguments of the divergence."""
        from robust0.losses import divergence

        clean, adversarial = answers.both()
        return {
            "clean": answers.cross_entropy(clean),
            "divergence": self.beta * divergence(clean, adversarial).mean(),
        }


OBJECTIVES: Registry[Objective] = Registry(
    "objective", [CleanObjective, AdversarialObjective, TradeoffObjective, TradesObjective]
)
