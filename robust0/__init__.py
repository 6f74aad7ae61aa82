"""robust0: harden and audit image classifiers against sparse (l0) attacks.

Nothing here imports torch until it is called.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def load(source: "str | Path", *, device: str = "cpu") -> "nn.Module":
    """A hardened network, ready for images (B, 3, H, W) in [0, 1], in eval mode.

    Args:
        source: the path of a robust0 checkpoint (``.safetensors``), or the id of a zoo model.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.
    """
    from robust0.device import resolve
    from robust0.models.checkpoint import load as load_checkpoint
    from robust0.zoo.fetch import locate

    return load_checkpoint(locate(str(source)), device=resolve(device)).network.eval()
