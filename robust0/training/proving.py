"""Certified accuracy on reserved images: what stands in for a probe where proofs can be had."""

import torch
from torch import Tensor

from robust0.certificates.ablation import Ablation
from robust0.certificates.votes import CertifiedAnswer
from robust0.data.imageset import ImageSet
from robust0.models.fast.oracle import frozen
from robust0.models.voting import AblationSmoothing, Certifiable, MaskCover, ViewVoting

ROWS = 64
CHOOSE, BOUND = 20, 100  # masks per image and reading, of a classifier that is sampled


def proved_accuracy(
    model: Certifiable, data: ImageSet, rows: Tensor, radius: int
) -> tuple[float, float]:
    """The classifier's accuracy on these images, and how much of it is proved at a radius."""
    right = sure = 0
    with frozen(model), torch.no_grad():
        for part in rows.split(ROWS):
            decided = _decided(model, data.images(part), data.ids[part])
            correct = decided.labels == data.labels[part]
            right += int(correct.sum())
            sure += int((correct & (decided.radius >= radius)).sum())
    return right / len(rows), sure / len(rows)


def _decided(model: Certifiable, images: Tensor, ids: Tensor) -> CertifiedAnswer:
    if isinstance(model, ViewVoting):
        return model.decide(model.view_logits(images))
    if isinstance(model, MaskCover):
        return model.decide(images)
    if not isinstance(model, AblationSmoothing):
        raise TypeError(f"no certificate is known for a {type(model).__name__}")
    rule = Ablation(pixels=images[0, 0].numel(), keep=model.keep, choose=CHOOSE, bound=BOUND)
    chosen = model.counts(images, ids, range(CHOOSE), "choose").tolist()
    bounded = model.counts(images, ids, range(BOUND), "bound").tolist()
    proved = [rule.decide(*counts) for counts in zip(chosen, bounded, strict=True)]
    labels = [-1 if proof.label is None else proof.label for proof in proved]
    return CertifiedAnswer(torch.tensor(labels), torch.tensor([proof.radius for proof in proved]))
