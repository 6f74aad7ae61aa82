"""A trained network by its path or name."""

from collections.abc import Callable
from pathlib import Path

from torch import nn

from robust0.api.refusals import in_python
from robust0.device import resolve_device
from robust0.errors import ModelError
from robust0.models.checkpoint import load_checkpoint as load_checkpoint
from robust0.models.factory import from_factory
from robust0.zoo.fetch import locate


def load(
    source: str | Path | None = None,
    *,
    factory: str | Callable[[], nn.Module] | None = None,
    device: str = "cpu",
) -> nn.Module:
    """A hardened network, ready for images (B, C, H, W) in [0, 1], in eval mode.

    Args:
        source: a run directory of a training, a robust0 checkpoint (``.safetensors``), the id of a
            zoo model, or ``hf-hub:OWNER/REPO[@REVISION]``, which robust0 zoo push has written (its
            weights are checked against its card); with a factory, its weights.
        factory: makes the network where robust0 does not know it: a callable without arguments, or
            its name as ``package.module:callable``.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.
    """
    with in_python():
        place = resolve_device(device)
        weights = None if source is None else locate(str(source))
        if factory is not None:
            return from_factory(factory, weights).network.to(place).eval()
        if weights is None:
            hint = "give a path, the id of a zoo model, or a factory"
            raise ModelError("no model was named", hint)
        return load_checkpoint(weights, device=place).network.eval()
