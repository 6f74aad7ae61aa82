"""A baseline's attempts on a new model: an alarm within seconds, before any attack has run.

What broke or nearly broke the old model is a transfer attack on the new one. It proves images
broken, never images safe, so it is kept out of the paired test.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from robust0.decision import ReplayResult
from robust0.errors import RunError
from robust0.gate.baseline import Baseline, StoredAttempt

if TYPE_CHECKING:
    from torch import Tensor, nn


def ordered(baseline: Baseline, known: Sequence[int]) -> list[StoredAttempt]:
    """The attempts on images at hand, the lowest margin first; refuses a baseline without any."""
    here = set(known)
    found = [attempt for attempt in baseline.attempts if attempt.image in here]
    if not found:
        raise RunError(
            "the baseline has no attempts on these images to replay"
            if baseline.attempts
            else "the baseline carries no attempts to replay",
            "write it anew: robust0 gate RUN --write-baseline baseline.json",
        )
    return sorted(found, key=lambda attempt: (attempt.margin, attempt.image))


def painted(attempt: StoredAttempt, clean: NDArray[np.float32]) -> NDArray[np.float32]:
    """The attacked image, from the clean one (C, H, W) in [0, 1]."""
    stored = attempt.perturbation()
    if not stored.fits(clean.shape):
        raise RunError(
            f"the baseline's attempt on image {attempt.image} does not fit images {clean.shape}",
            "the baseline was made from other images",
        )
    return stored.paint(clean)


def replay(
    network: "nn.Module", baseline: Baseline, images: "Tensor", labels: "Tensor", ids: "Tensor"
) -> ReplayResult:
    """Try a baseline's attempts on a network.

    Args:
        network: takes images in [0, 1], on the images' device.
        baseline: whose attempts are tried.
        images: clean (N, C, H, W) float32 in [0, 1].
        labels: (N,).
        ids: (N,); images without an attempt are left out.
    """
    import torch

    from robust0.attacks.judge import judge
    from robust0.models.fast.oracle import Oracle, checked_finite, frozen
    from robust0.threats import Threat

    rows = {image: row for row, image in enumerate(ids.tolist())}
    attempts = ordered(baseline, list(rows))
    at = torch.tensor([rows[attempt.image] for attempt in attempts], device=images.device)
    clean, truth = images[at], labels[at]
    known = dict(zip(baseline.ids, baseline.labels, strict=True))
    if truth.tolist() != [known.get(attempt.image) for attempt in attempts]:
        raise RunError("the images have other labels than the baseline", "use the baseline's data")
    candidates = torch.from_numpy(
        np.stack([painted(a, c) for a, c in zip(attempts, clean.cpu().numpy(), strict=True)])
    ).to(images.device)
    settings = baseline.settings
    threat = Threat.of(max(attempt.budget for attempt in attempts), settings.unit)
    with frozen(network):
        oracle = Oracle(network, settings.batch_size, images.device)
        wrong = checked_finite(oracle.exact(clean)).argmax(dim=1) != truth
        fooled = judge(oracle, threat, clean, candidates, truth).fooled
    survived = baseline.survived()
    stood = torch.tensor([survived[attempt.image] for attempt in attempts], device=images.device)
    fallen = wrong | fooled
    return ReplayResult(
        images=len(baseline.ids),
        survivors=int(stood.sum()),
        newly_broken=int((stood & fallen).sum()),
        newly_wrong=int((stood & wrong).sum()),
        hits=int((~stood).sum()),
        still_hits=int((~stood & fallen).sum()),
    )
