"""Where two perturbations of the same images lie: distance, shared locations, and what chance does.

Normalised l0 distance: sites where the two images differ, over the sites that the one and the
other change; 1 for disjoint ones. Location distance: the same for the sites alone, whatever
their values. Overlap: the share of the second's sites that the first changes too. Blind guessing
overlaps as well, in proportion to its budget, so every number comes with its level by chance.
"""

from dataclasses import dataclass

from torch import Tensor

from robust0.threats import Threat


@dataclass(frozen=True, slots=True)
class Overlaps:
    """One entry per image that both attacks changed."""

    rows: Tensor  # (M,) positions of these images
    distance: Tensor  # (M,) normalised l0 distance
    location: Tensor  # (M,) the same for locations alone
    overlap: Tensor  # (M,) shared sites over the second's sites
    first: Tensor  # (M,) sites the first changes
    second: Tensor  # (M,)


def overlaps(threat: Threat, clean: Tensor, first: Tensor, second: Tensor) -> Overlaps:
    """Compare two perturbations (N, C, H, W) of the same images, counted in the threat's unit."""
    one, two = (_changed(threat, clean, other) for other in (first, second))
    sizes = one.sum(dim=1), two.sum(dim=1)
    rows = ((sizes[0] > 0) & (sizes[1] > 0)).nonzero()[:, 0]
    one, two = one[rows], two[rows]
    both, shared = sizes[0][rows] + sizes[1][rows], (one & two).sum(dim=1)
    return Overlaps(
        rows=rows,
        distance=_changed(threat, first[rows], second[rows]).sum(dim=1) / both,
        location=(one ^ two).sum(dim=1) / both,
        overlap=shared / sizes[1][rows],
        first=sizes[0][rows],
        second=sizes[1][rows],
    )


def _changed(threat: Threat, clean: Tensor, other: Tensor) -> Tensor:
    """(N, S) bool: the sites in which any value differs."""
    return (threat.view(clean) != threat.view(other)).any(dim=1)


def chance_overlap(first: float, sites: int) -> float:
    """The expected overlap if ``first`` sites were drawn blindly."""
    return first / sites


def chance_distance(first: float, second: float, sites: int) -> float:
    """The expected normalised l0 distance of blind draws whose values never agree."""
    return 1 - first * second / (sites * (first + second))


def chance_location(first: float, second: float, sites: int) -> float:
    """The expected location distance of blind draws."""
    return 1 - 2 * first * second / (sites * (first + second))
