"""Re-checks every claim of an attack: label, distance, box, finiteness. No attack judges itself."""

from dataclasses import dataclass

import torch
from torch import Tensor

from robust0.losses import margin
from robust0.models.fast.oracle import Oracle, checked_finite
from robust0.threats import Threat

FRAGILE = 1e-3  # of the spread; closer calls can flip with another batch shape or device


@dataclass(frozen=True, slots=True)
class Judgement:
    """What eager float32 says about candidate images, one entry per row."""

    fooled: Tensor  # (B,) bool, never true for a violation
    prediction: Tensor  # (B,)
    margin: Tensor  # (B,)
    distance: Tensor  # (B,) from the clean image, in the threat's unit
    fragile: Tensor  # (B,) bool
    violation: tuple[str, ...]  # "" or what was broken


def logit_spread(logits: Tensor) -> Tensor:
    """(B,) how far the answers of a row lie apart: the scale of what is close."""
    return logits.std(dim=1, correction=0)


def judge(
    oracle: Oracle, threat: Threat, clean: Tensor, candidates: Tensor, labels: Tensor,
    scale: Tensor | None = None,
) -> Judgement:  # fmt: skip
    """Evaluate candidates (B, C, H, W) against their clean images.

    ``scale`` is the spread of the clean images' logits, which are asked for if it is not given. The
    candidates' own would not do: of two classes it is half the margin.
    """
    finite = torch.isfinite(candidates).flatten(1).all(dim=1)
    inside = ((candidates >= 0) & (candidates <= 1)).flatten(1).all(dim=1)
    distance = threat.distance(clean, candidates)
    near = distance <= threat.budget
    logits = checked_finite(
        oracle.exact(torch.where(finite[:, None, None, None], candidates, clean))
    )
    prediction, gap = logits.argmax(dim=1), margin(logits, labels)
    if scale is None:
        scale = logit_spread(logits if candidates is clean else checked_finite(oracle.exact(clean)))
    allowed = finite & inside & near
    flags = torch.stack([finite, inside, near]).T.tolist()
    return Judgement(
        fooled=(prediction != labels) & allowed,
        prediction=prediction,
        margin=gap,
        distance=distance,
        fragile=gap.abs() <= FRAGILE * torch.maximum(scale, logit_spread(logits)),
        violation=tuple(_violation(*row) for row in flags),
    )


def _violation(finite: bool, inside: bool, near: bool) -> str:  # noqa: FBT001 - zipped flags
    if not finite:
        return "not finite"
    if not inside:
        return "outside [0, 1]"
    return "" if near else "beyond the budget"
