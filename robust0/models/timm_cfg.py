"""What timm wants to know about a network it can register."""

from typing import Any


def small_image_cfg(classifier: str) -> dict[str, Any]:
    """The configuration of a network for 32x32 images without weights of its own."""
    return {
        "url": "",
        "num_classes": 10,
        "input_size": (3, 32, 32),
        "pool_size": (4, 4),
        "crop_pct": 1.0,
        "interpolation": "bicubic",
        "mean": (0.0, 0.0, 0.0),
        "std": (1.0, 1.0, 1.0),
        "first_conv": "conv1",
        "classifier": classifier,
    }
