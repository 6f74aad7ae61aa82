"""Images that a caller holds in memory, as the audit wants them."""

import hashlib
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from robust0.data.imageset import DataOrigin, ImageSet
from robust0.errors import DataError

ROUNDING = 1e-6  # how far outside [0, 1] float arithmetic may have pushed a value


class GivenSet(ImageSet):
    """Float images (N, C, H, W) in [0, 1]; the fingerprint covers ids, labels and every value."""

    def __init__(self, origin: DataOrigin, images: Tensor, labels: Tensor, ids: Tensor) -> None:
        super().__init__(origin, labels, ids)
        self._images = images

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """As given."""
        channels, height, width = self._images.shape[1:]
        return channels, height, width

    def images(self, index: Tensor) -> Tensor:
        """The images at these positions."""
        return self._images[index.to(self.device)]

    def subset(self, index: Tensor) -> Self:
        """A copy of the chosen rows."""
        at = index.to(self.device)
        return type(self)(self.origin, self._images[at], self.labels[at], self.ids[at])

    def to(self, device: torch.device) -> Self:
        """Everything moved."""
        return type(self)(
            self.origin, self._images.to(device), self.labels.to(device), self.ids.to(device)
        )

    def checksums(self) -> dict[str, str]:
        """The digest of the values as they are."""
        return {"images": hashlib.sha256(next(iter(self._content()))).hexdigest()}

    def _content(self) -> Iterable[bytes]:
        yield self._images.cpu().contiguous().numpy().tobytes()


def given_images(images: Any, labels: Any, device: torch.device) -> GivenSet:  # noqa: ANN401
    """A set from tensors, arrays or lists; refuses what does not look like images in [0, 1]."""
    pixels, classes = _images(images), _labels(labels)
    if len(pixels) != len(classes):
        raise DataError(
            f"{len(pixels)} images but {len(classes)} labels", "give one label per image"
        )
    if len(pixels) == 0:
        raise DataError("there are no images to audit", "give at least one image")
    if int(classes.min()) < 0:
        raise DataError(
            f"labels must not be negative, got {int(classes.min())}", "number classes from zero"
        )
    names = tuple(str(label) for label in range(int(classes.max()) + 1))
    origin = DataOrigin("given images", "given", names, "memory")
    ids = torch.arange(len(pixels), device=device)
    return GivenSet(origin, pixels.to(device), classes.to(device), ids)


def _images(given: Any) -> Tensor:  # noqa: ANN401 - anything array-like
    values = given.detach() if isinstance(given, Tensor) else torch.from_numpy(np.asarray(given))
    if values.ndim != 4:
        raise DataError(
            f"images must be (N, C, H, W), got shape {tuple(values.shape)}",
            "add the batch dimension: images[None]",
        )
    if values.shape[1] > 4 and values.shape[3] in (1, 3):
        raise DataError(
            f"images must be (N, C, H, W), got shape {tuple(values.shape)}",
            "move the channels: images.transpose(0, 3, 1, 2), or permute in torch",
        )
    if not values.is_floating_point():
        raise DataError(
            f"images must be floats in [0, 1], got {str(values.dtype).removeprefix('torch.')}",
            "divide by 255 if they are 0..255",
        )
    values = values.to(torch.float32)
    if not bool(torch.isfinite(values).all()):
        raise DataError("the images hold NaN or Inf", "check how they were loaded")
    if values.numel():
        _check_range(float(values.min()), float(values.max()))
    return values.clamp(0, 1).contiguous()


def _check_range(low: float, high: float) -> None:
    if low >= -ROUNDING and high <= 1 + ROUNDING:
        return
    if low >= -ROUNDING:
        hint = "divide by 255 if they are 0..255"
    elif low >= -1 - ROUNDING and high <= 1 + ROUNDING:
        hint = "map them with (images + 1) / 2, and put the normalisation inside the module"
    else:
        hint = "undo the normalisation, and put mean and std inside the module"
    raise DataError(f"images must lie in [0, 1], got values from {low:.4g} to {high:.4g}", hint)


def _labels(given: Any) -> Tensor:  # noqa: ANN401 - anything array-like
    array = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"labels must be a flat array of integers, got {array.dtype} {array.shape}",
            "give class numbers, not one-hot rows or floats",
        )
    return torch.from_numpy(array.astype(np.int64))
