"""Random perturbations that replace a training image before anything else happens to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from robust0.lazy import torch
from robust0.registry import Positive, Registry, setting

if TYPE_CHECKING:
    from torch import Tensor

    from robust0.rng import Stream
    from robust0.threats import Threat

_COUNT, _SITES, _VALUES = 0, 1, 2  # lanes of the random stream


class InputNoise(Protocol):
    """Images (B, C, H, W) in, noisy images out; draws are keyed by the stream and image ids."""

    kind: ClassVar[str]

    def __call__(self, images: Tensor, ids: Tensor, stream: Stream, threat: Threat) -> Tensor:
        """The images to train on in place of these; ``threat`` is the training budget."""


@dataclass(frozen=True, slots=True)
class NoNoise:
    """Leaves images as they are."""

    kind: ClassVar[str] = "none"
    source: ClassVar[str] = "Sec. 5.1"

    def __call__(self, images: Tensor, ids: Tensor, stream: Stream, threat: Threat) -> Tensor:  # noqa: ARG002
        """The same images."""
        return images


@dataclass(frozen=True, slots=True)
class SparseNoise:
    """N-FGSM's noise for l0 [Fast-LS, Sec. 5]: repaint n random sites, n uniform on 0..factor*k.

    The noisy image becomes the centre of the attack and the clean branch of the loss; nothing is
    projected back, so the total may reach (1 + factor) * k sites.
    """

    kind: ClassVar[str] = "sparse"
    source: ClassVar[str] = "Sec. 5.1"
    factor: Positive = setting(
        2.0, "most noisy sites, as a multiple of the training budget", "App. G"
    )
    values: Literal["box", "uniform-colour"] = setting(
        "box", "box: U(-1, 1) added, then clipped; uniform-colour: a colour from U(0, 1)"
    )

    def __call__(self, images: Tensor, ids: Tensor, stream: Stream, threat: Threat) -> Tensor:
        """Images with random sites repainted."""
        clean = threat.view(images)
        sites, chosen = self.draw(clean, ids, stream, int(threat.budget))
        width = sites.shape[1]
        draw = stream.uniform(ids, torch.zeros_like(ids), clean.shape[1] * width, _VALUES)
        draw = draw.view(len(ids), clean.shape[1], width)
        index = sites[:, None].expand_as(draw)
        present = clean.gather(2, index)
        if self.values == "box":
            # As Sparse-PGD starts: an offset from U(-1, 1) clipped into the box.
            draw = (present + 2 * draw - 1).clamp(0, 1)
        painted = torch.where(chosen[:, None], draw, present)
        _, channels, height, width = images.shape
        return threat.image(clean.scatter(2, index, painted), (channels, height, width))

    def draw(
        self, clean: Tensor, ids: Tensor, stream: Stream, budget: int
    ) -> tuple[Tensor, Tensor]:
        """Candidate sites (B, m) and which of them are used (B, m): a uniform number of them."""
        zero = torch.zeros_like(ids)
        most = min(int(self.factor * budget), clean.shape[2])
        number = stream.integers(ids, zero, 1, most + 1, _COUNT)
        sites = stream.subset(ids, zero, most, clean.shape[2], _SITES)
        return sites, torch.arange(most, device=clean.device) < number


NOISES: Registry[InputNoise] = Registry("noise", [NoNoise, SparseNoise])
