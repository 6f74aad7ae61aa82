"""Two classifiers on the same images: the drop, its interval, its p, what could have been seen."""

import math
from collections.abc import Sequence

from robust0.auditing.interval import wilson
from robust0.decision import PairedComparison

ALPHA = 0.05


def compare_pairs(before: Sequence[bool], after: Sequence[bool]) -> PairedComparison:
    """Which images are right before and after, in the same order."""
    images = len(before)
    both = sum(b and a for b, a in zip(before, after, strict=True))
    worse, better = sum(before) - both, sum(after) - both
    low, high = drop_interval(both, worse, better, images - both - worse - better)
    return PairedComparison(
        images=images,
        worse=worse,
        better=better,
        before=_points(both + worse, images),
        after=_points(both + better, images),
        drop=_points(worse - better, images),
        low=100 * low,
        high=100 * high,
        p=mcnemar(worse, better),
        smallest=smallest_drop(images),
    )


def mcnemar(worse: int, better: int) -> float:
    """The chance of at least ``worse`` of the discordant images if both directions were equal."""
    from scipy.stats import binomtest

    if worse + better == 0:
        return 1.0
    return float(binomtest(worse, worse + better, 0.5, alternative="greater").pvalue)


def smallest_drop(images: int) -> float | None:
    """In points: the fewest lost images with p < 0.05 when none is won; None if there are fewer."""
    fewest = next(count for count in range(1, 64) if 0.5**count < ALPHA)
    return _points(fewest, images) if fewest <= images else None


def drop_interval(both: int, worse: int, better: int, neither: int) -> tuple[float, float]:
    """Newcombe's 95 % score interval for the difference of paired shares, before minus after.

    Newcombe, Statistics in Medicine 17 (1998) 2635, method 10: the Wilson intervals of the two
    shares, joined with the correlation of the pairs.
    """
    images = both + worse + better + neither
    if images == 0:
        return -1.0, 1.0
    before, after = (both + worse) / images, (both + better) / images
    low_b, high_b = wilson(both + worse, images)
    low_a, high_a = wilson(both + better, images)
    phi = _correlation(both, worse, better, neither)
    down = _joined(before - low_b, high_a - after, phi)
    up = _joined(high_b - before, after - low_a, phi)
    drop = (worse - better) / images
    return max(-1.0, drop - down), min(1.0, drop + up)


def _joined(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))


def _correlation(both: int, worse: int, better: int, neither: int) -> float:
    margins = (both + worse) * (better + neither) * (both + better) * (worse + neither)
    if margins == 0:
        return 0.0
    cross = float(both * neither - worse * better)
    if cross > 0:  # Newcombe's continuity correction
        cross = max(0.0, cross - (both + worse + better + neither) / 2)
    return cross / math.sqrt(margins)


def _points(count: int, images: int) -> float:
    return 100 * count / images if images else 0.0
