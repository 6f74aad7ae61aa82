"""Votes of views: the answer and its certified radius, in integers from end to end.

All radii here are in views. A changed pixel changes at most one view, so they hold in pixels too.
They are exact in views: with one view more, some content of the changed views alters the answer.
Ties go to the smaller label everywhere, in a view and between views.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from robust0.errors import EvaluationError

_STEP = 2.0**-20  # the resolution of quantised logits
_LIMIT = 2.0**40


@dataclass(frozen=True, slots=True)
class CertifiedAnswer:
    """What a voting rule answers, and for how many changed views the answer is proved to stay."""

    labels: Tensor  # (B,) int64
    radius: Tensor  # (B,) int64; 0 proves nothing


def quantised(logits: Tensor) -> Tensor:
    """Logits as int64 of any shape, so that comparing them cannot depend on rounding again.

    Defined for every input: nan counts as zero and infinities as very large. A view that was made
    to overflow casts some vote, which the certificates cover, instead of stopping the classifier.
    """
    steps = torch.nan_to_num(logits.to(torch.float64), nan=0.0) / _STEP
    return steps.clamp(-_LIMIT, _LIMIT).round().to(torch.int64)


def shares(probabilities: Tensor, whole: int) -> Tensor:
    """Probabilities as int64 from 0 to ``whole``; nan counts as zero."""
    scaled = torch.nan_to_num(probabilities.to(torch.float64), nan=0.0) * whole
    return scaled.round().clamp(0, whole).to(torch.int64)


def vote_keys(counts: Tensor) -> Tensor:
    """Keys (..., K) in the order of the integers given; equal ones fall with the label.

    No two keys of a row are equal. This is the one place where ties are broken: predicting and
    certifying both compare keys, or subtract one vote where the key says so.
    """
    if counts.is_floating_point():
        raise EvaluationError("Votes must be integers.", "Quantise logits and probabilities first.")
    classes = counts.shape[-1]
    if classes < 2:
        raise EvaluationError("A vote needs at least two classes.", "Check the network's outputs.")
    return counts * classes - torch.arange(classes, device=counts.device)


def leader(counts: Tensor) -> Tensor:
    """The class with the largest entry along the last dimension, the smallest label of equals."""
    return vote_keys(counts).argmax(dim=-1)


def plurality(votes: Tensor, classes: int) -> CertifiedAnswer:
    """The class with most votes.

    With n_c votes for c, B overtakes the answer A if n_B >= n_A + [B > A]. A changed view moves
    n_A - n_B by at most 2, so r views are not enough while 2 r <= n_A - n_B - [B < A]. One view
    more is enough, if it and the others turn from A to B; A always has that many.

    Args:
        votes: (B, T) int64 labels below ``classes``.
        classes: How many there are.
    """
    counts = one_hot(votes, classes).sum(dim=1)
    labels = leader(counts)
    lead = counts.gather(1, labels[:, None]) - counts - _before(labels, classes)
    return CertifiedAnswer(labels, _least(lead.div(2, rounding_mode="floor"), labels))


def soft(portions: Tensor, whole: int) -> CertifiedAnswer:
    """The class with the largest sum of integer shares.

    A changed view can move p_A - p_B from its value down to -``whole``, and no lower. The best r
    views to change are those with the most to lose, so B stays behind A if and only if the sum of
    p_A - p_B over all views, less the r largest p_A - p_B + whole, is at least [B < A]. The worst
    case gives all of a view to B, for which no other class matters: the bound is exact for each B,
    hence for all. It can only be improved by knowing more about what the network can be made to
    say, not from the shares.

    Args:
        portions: (B, T, K) int64 from 0 to ``whole``. They need not add up to it.
        whole: The share of a class that a view is sure of, at least 1.
    """
    if whole < 1 or bool(((portions < 0) | (portions > whole)).any()):
        raise EvaluationError(f"Shares must lie between 0 and {whole}.", "Quantise with shares().")
    labels = leader(portions.sum(dim=1))
    mine = portions.gather(2, labels[:, None, None].expand(-1, portions.shape[1], 1))
    margins = mine - portions  # (B, T, K)
    losses = (margins + whole).sort(dim=1, descending=True).values.cumsum(dim=1)
    left = margins.sum(dim=1, keepdim=True) - losses
    held = left >= _before(labels, portions.shape[2])[:, None]
    return CertifiedAnswer(labels, _least(held.sum(dim=1), labels))


def _before(labels: Tensor, classes: int) -> Tensor:
    """(B, K) int64: one for the classes that win a tie against the label."""
    return (torch.arange(classes, device=labels.device) < labels[:, None]).to(torch.int64)


def _least(radius: Tensor, labels: Tensor) -> Tensor:
    """The smallest entry of (B, K) over the rivals of the label."""
    never = torch.iinfo(radius.dtype).max
    return radius.scatter(1, labels[:, None], never).amin(dim=1)
