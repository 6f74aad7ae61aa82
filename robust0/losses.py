"""Per-image losses that attacks climb and training descends: pure functions of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robust0.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

NEARLY_FOOLED = 0.5  # margin below which the adaptive loss is the margin itself


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """(B,) cross entropy; labels are class indices (B,) or distributions (B, K).

    For indices it is written without the cancellation of ``logsumexp(logits) - label``, which in
    float32 is exactly zero from a margin of 17 on: attacks still have to climb there.
    """
    if labels.is_floating_point():
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    others = logits.scatter(1, labels[:, None], float("-inf")).logsumexp(dim=1)
    return _softplus(others - logits.gather(1, labels[:, None])[:, 0])


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """(B,) label's logit minus the best other logit; negative means misclassified."""
    others = logits.scatter(1, labels[:, None], float("-inf"))
    return logits.gather(1, labels[:, None])[:, 0] - others.amax(dim=1)


def adaptive(logits: Tensor, labels: Tensor, target: Tensor) -> Tensor:
    """(B,) the negative margin where that margin is below 0.5, cross entropy to target elsewhere.

    A nearly fooled image is pushed over the boundary, a safe one away from its target: the loss of
    the training attack in the release of [Zhong25].
    """
    distance = margin(logits, labels)
    return torch.where(distance < NEARLY_FOOLED, -distance, cross_entropy(logits, target))


def _softplus(values: Tensor) -> Tensor:
    """log(1 + exp(x)) to the last bit in both tails."""
    return values.relu() + (-values.abs()).exp().log1p()


def divergence(reference: Tensor, logits: Tensor) -> Tensor:
    """(B,) KL from softmax(reference) to softmax(logits); gradients flow through both."""
    log_reference = reference.log_softmax(dim=1)
    return (log_reference.exp() * (log_reference - logits.log_softmax(dim=1))).sum(dim=1)
