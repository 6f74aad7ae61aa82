"""Shrinks verified hits, the judge watching, so that the distance left says something."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robust0.attacks.judge import judge, logit_spread
from robust0.losses import margin
from robust0.models.fast.oracle import Oracle
from robust0.threats import Threat
from robust0.threats.perturbation import Perturbation


@dataclass(frozen=True, slots=True)
class SmallerHit:
    """A hit at a smaller distance, and what the judge says about it."""

    attempt: Perturbation
    fooled: bool  # false only if the model answers the same question in two ways
    distance: float
    prediction: int
    margin: float
    fragile: bool
    violation: str


def prune(
    oracle: Oracle, threat: Threat, clean: Tensor, attempts: Sequence[Perturbation], labels: Tensor
) -> list[SmallerHit]:
    """Shrink verified hits on clean (B, C, H, W) images.

    A step is kept if the judge still calls the image fooled, and not by a hair: what is stored must
    not flip where it is loaded.
    """
    scale = logit_spread(oracle.exact(clean))
    arrays = clean.cpu().numpy()
    painted = [attempt.paint(image) for attempt, image in zip(attempts, arrays, strict=True)]
    hits = torch.stack([torch.from_numpy(image) for image in painted]).to(clean.device)

    def holds(rows: list[int], images: Tensor) -> list[bool]:
        index = torch.tensor(rows, device=clean.device)
        verdict = judge(oracle, threat, clean[index], images, labels[index], scale[index])
        kept: list[bool] = (verdict.fooled & ~verdict.fragile).tolist()
        return kept

    smaller = threat.shrink(clean, hits, _slope(oracle, hits, labels), holds, oracle.batch_size)
    verdict = judge(oracle, threat, clean, smaller, labels, scale)
    columns = zip(
        clean, smaller, verdict.fooled.tolist(), verdict.distance.tolist(),
        verdict.prediction.tolist(), verdict.margin.tolist(), verdict.fragile.tolist(),
        verdict.violation, strict=True,
    )  # fmt: skip
    return [SmallerHit(threat.encode(before, after), *facts) for before, after, *facts in columns]


def _slope(oracle: Oracle, hits: Tensor, labels: Tensor) -> Tensor:
    """The gradient of the margin at the hits; a gradient call takes at most a batch."""
    slopes = []
    for part, wanted in zip(
        hits.split(oracle.batch_size), labels.split(oracle.batch_size), strict=True
    ):

        def objective(logits: Tensor, wanted: Tensor = wanted) -> Tensor:
            return margin(logits, wanted)

        slopes.append(oracle.gradient(part, objective)[1])
    return torch.cat(slopes)
