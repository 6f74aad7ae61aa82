"""Accuracy on the way from a clean image to its perturbed one: are magnitudes the trouble?"""

from collections.abc import Sequence

from torch import Tensor, nn

from robust0.errors import RecipeError
from robust0.study.perturb import share_right

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def along(
    network: nn.Module,
    clean: Tensor,
    perturbed: Tensor,
    labels: Tensor,
    shares: Sequence[float] = SHARES,
) -> list[float]:
    """Accuracy at ``clean + share * (perturbed - clean)`` for every share."""
    if not shares or min(shares) < 0 or max(shares) > 1:
        raise RecipeError(
            f"points between an image and its perturbation lie in 0 ... 1, got {list(shares)}",
            "for example 0,0.2,0.4,0.6,0.8,1",
        )
    # Exact at both ends, inside the box between them.
    return [
        share_right(network, clean.lerp(perturbed, share) if share < 1 else perturbed, labels)
        for share in shares
    ]
