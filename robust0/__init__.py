"""robust0: harden, audit and certify image classifiers against sparse (l0) attacks.

Nothing here imports torch until it is called.
"""

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

    from robust0.proofs import CertificateReport
    from robust0.records import Report

__version__ = "0.1.0"
__all__ = ["__version__", "audit", "certify", "load"]


def load(
    source: "str | Path | None" = None,
    *,
    factory: "str | Callable[[], nn.Module] | None" = None,
    device: str = "cpu",
) -> "nn.Module":
    """A hardened network, ready for images (B, C, H, W) in [0, 1], in eval mode.

    Args:
        source: a run directory of ``robust0 harden``, a robust0 checkpoint (``.safetensors``), or
            the id of a zoo model; with a factory, its weights.
        factory: makes the network where robust0 does not know it: a callable without arguments, or
            its name as ``package.module:callable``.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.
    """
    from robust0.device import resolve
    from robust0.errors import ModelError
    from robust0.zoo.fetch import locate

    place = resolve(device)
    if factory is not None:
        from robust0.models.factory import from_factory

        weights = None if source is None else locate(str(source))
        return from_factory(factory, weights).network.to(place).eval()
    if source is None:
        raise ModelError("no model was named", "give a path, the id of a zoo model, or a factory")
    from robust0.models.checkpoint import load as load_checkpoint

    return load_checkpoint(locate(str(source)), device=place).network.eval()


def audit(
    module: "nn.Module",
    images: Any,  # noqa: ANN401 - a tensor or an array
    labels: Any,  # noqa: ANN401 - a tensor or an array
    eps: "int | tuple[int, ...]" = 20,
    effort: 'Literal["smoke", "quick", "standard", "paper"]' = "quick",
    **options: Any,  # noqa: ANN401 - see robust0.api.audit
) -> "Report":
    """Attack a network on these images and report an upper bound on its robust accuracy.

    Args:
        module: takes images (B, C, H, W) in [0, 1], returns logits (B, classes).
        images: what to attack, as such a batch.
        labels: the true class of each image.
        eps: how many pixels may change, or several such budgets.
        effort: ``smoke``, ``quick``, ``standard`` or ``paper``.
        options: ``attacks``, ``unit``, ``mode``, ``seed`` and more: see robust0.api.audit.
    """
    from robust0 import api

    return api.audit(module, images, labels, eps, effort, **options)


def certify(
    module: "nn.Module",
    images: Any,  # noqa: ANN401 - a tensor or an array
    labels: Any,  # noqa: ANN401 - a tensor or an array
    eps: "int | tuple[int, ...]" = (1, 2, 5, 10, 20),
    **options: Any,  # noqa: ANN401 - see robust0.api.certify
) -> "CertificateReport":
    """Prove how many changed pixels the answers of a voting classifier withstand.

    Args:
        module: takes images (B, C, H, W) in [0, 1]; it votes over views, looks under masks or is
            smoothed by ablation.
        images: what to certify, as such a batch.
        labels: the true class of each image.
        eps: how many changed pixels to report about.
        options: ``samples``, ``alpha``, ``tried`` and more: see robust0.api.certify.
    """
    from robust0 import api

    return api.certify(module, images, labels, eps, **options)
