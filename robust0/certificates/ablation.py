"""Randomised ablation: the class most likely when a few random pixels are all that is seen.

Levine & Feizi 2020 and Jia et al. 2022. The certificate speaks of the smoothed classifier, whose
probabilities can only be estimated, and is wrong with probability alpha at most.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Literal

import torch
from torch import Tensor

from robust0.errors import EvaluationError, RecipeError
from robust0.rng import Stream

# SAFETY: far above the error of scipy's quantiles, far below what a sample can resolve.
_OUTWARD = 1e-9


@dataclass(frozen=True, slots=True)
class AblationCertificate:
    """The smoothed class and the changed pixels it is proved to survive; no label: abstained."""

    label: int | None
    radius: int  # 0 where it abstains
    low: float  # the answer is at least this likely
    high: float  # every other class is at most this likely


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """How many pixels are seen, how often, and with which certainty.

    The class is chosen on ``choose`` samples and bounded on ``bound`` others: a bound on the sample
    that suggested it would be too good. Sample numbers run through both. The seed must be fixed
    before the images are seen.

    Attributes:
        pixels: Of the whole image.
        keep: How many of them a sample shows.
        alpha: The chance of a false certificate, per image.
        condition: ``half`` bounds the answer alone, against all others together. ``gap`` bounds
            every class, at alpha shared among them, against the likeliest other.
    """

    pixels: int
    keep: int
    choose: int = 1000
    bound: int = 10000
    alpha: float = 0.05
    condition: Literal["half", "gap"] = "half"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.keep <= self.pixels or min(self.choose, self.bound) < 1:
            raise RecipeError(
                f"Cannot show {self.keep} of {self.pixels} pixels in "
                f"{self.choose} and {self.bound} samples.",
                "Keep from one pixel to all, and draw at least one sample of each kind.",
            )
        if not 0 < self.alpha < 1:
            raise RecipeError(f"alpha is {self.alpha}.", "Choose it between 0 and 1.")

    def visible(self, ids: Tensor, samples: Tensor) -> Tensor:
        """(B, pixels) bool: what each sample shows, a function of image id and sample number."""
        stream = Stream.of(self.seed, "certify", "ablation", self.pixels, self.keep)
        high, low = stream.words(ids, samples, 2 * self.pixels).chunk(2, dim=1)
        # 63 bits leave no tie worth a thought, so every subset is as likely as any other.
        chosen = ((high << 31) | (low >> 1)).topk(self.keep, dim=1).indices
        shown = torch.zeros(len(ids), self.pixels, dtype=torch.bool, device=ids.device)
        return shown.scatter_(1, chosen, value=True)

    def decide(self, chosen: Sequence[int], bounded: Sequence[int]) -> AblationCertificate:
        """The certificate of one image from how often each class was seen.

        The samples that show none of the r changed pixels look the same as before. They are all
        but a share Delta(r), so no probability moves by more. With p_A >= low and every other
        p_B <= high, A stays the likeliest if low - Delta > high + Delta. For ``half``, high is
        1 - low, and the same line reads low - Delta > 1/2.

        Args:
            chosen: Counts of the classes among the first ``choose`` samples.
            bounded: Counts among the ``bound`` samples after them.
        """
        if sum(chosen) != self.choose or sum(bounded) != self.bound or len(chosen) != len(bounded):
            raise EvaluationError("The counts do not add up to the samples.", "Count every sample.")
        label = max(range(len(chosen)), key=lambda c: (chosen[c], -c))
        if self.condition == "half":
            low = lower_bound(bounded[label], self.bound, self.alpha)
            gap = 2 * Fraction(low) - 1
            high = 1 - low
        else:
            part = self.alpha / len(bounded)
            low = lower_bound(bounded[label], self.bound, part)
            rival = max((n for c, n in enumerate(bounded) if c != label), default=0)
            high = upper_bound(rival, self.bound, part)
            # The bound on the answer is also one on all others together.
            gap = Fraction(low) - min(Fraction(high), 1 - Fraction(low))
            high = min(high, 1 - low)
        if gap <= 0:
            return AblationCertificate(None, 0, low, high)
        return AblationCertificate(label, survived(self.pixels, self.keep, gap), low, high)

    def expected_false(self, images: int) -> float:
        """At most this many false certificates among these images, on average.

        It is also a bound on the chance of any. ``images`` are those tried, not those certified.
        """
        return self.alpha * images


def delta(pixels: int, keep: int, changed: int) -> Fraction:
    """The share of samples that show a changed pixel: 1 - C(d - r, keep) / C(d, keep), exactly."""
    if not 0 <= changed <= pixels:
        raise EvaluationError(f"{changed} of {pixels} pixels cannot change.", "Count them again.")
    return 1 - Fraction(comb(pixels - changed, keep), comb(pixels, keep))


def survived(pixels: int, keep: int, gap: Fraction) -> int:
    """The most changed pixels r with 2 Delta(r) < gap, for a gap above 0."""
    # Delta rises with r, so the first r that fails is found by bisection. At most d - keep pass.
    candidates = range(pixels - keep + 2)
    failing = bisect_left(candidates, True, key=lambda r: 2 * delta(pixels, keep, r) >= gap)  # noqa: FBT003
    return failing - 1


def lower_bound(count: int, samples: int, alpha: float) -> float:
    """Clopper and Pearson's one-sided bound: a share is smaller with probability alpha at most."""
    from scipy.stats import beta

    if count == 0:
        return 0.0
    exact = float(beta.ppf(alpha, count, samples - count + 1))
    return max(0.0, exact - _OUTWARD)


def upper_bound(count: int, samples: int, alpha: float) -> float:
    """The same from above."""
    from scipy.stats import beta

    if count == samples:
        return 1.0
    exact = float(beta.isf(alpha, count + 1, samples - count))
    return min(1.0, exact + _OUTWARD)
