"""Shares of images with their 95 % Wilson intervals; no torch, no scipy."""

import math

from robust0.records import Accuracy

_Z = 1.959963984540054  # the 97.5 % point of the standard normal distribution


def wilson(count: int, images: int) -> tuple[float, float]:
    """The 95 % Wilson interval of ``count`` successes out of ``images``."""
    if images == 0:
        return 0.0, 1.0
    share, square = count / images, _Z * _Z
    centre = (share + square / (2 * images)) / (1 + square / images)
    spread = share * (1 - share) / images + square / (4 * images * images)
    half = _Z * math.sqrt(spread) / (1 + square / images)
    # Rounding must not push the ends past what was seen.
    low = 0.0 if count == 0 else max(0.0, centre - half)
    high = 1.0 if count == images else min(1.0, centre + half)
    return low, high


def accuracy(count: int, images: int) -> Accuracy:
    """``count`` of ``images`` still classified correctly."""
    low, high = wilson(count, images)
    share = count / images if images else 0.0
    return Accuracy(count=count, images=images, share=share, low=low, high=high)
