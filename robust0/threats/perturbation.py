"""A perturbed image without the image: what differs from the clean one. Numpy only, no torch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Perturbation:
    """Places of an image and their new values.

    A place is a pixel, numbered row by row, with its g = C values; or, where single features are
    counted, a position in the flattened (C, H, W) image, with g = 1.
    """

    places: NDArray[np.int32]  # (n,)
    values: NDArray[np.float32]  # (n, g)

    def paint(self, clean: NDArray[np.float32]) -> NDArray[np.float32]:
        """The perturbed image, from the clean (C, H, W) one in [0, 1]."""
        flat = np.array(clean, dtype=np.float32).reshape(self.values.shape[1], -1)
        flat[:, self.places] = self.values.T
        return flat.reshape(clean.shape)

    def fits(self, image_shape: tuple[int, int, int]) -> bool:
        """Whether it can be painted on such an image."""
        channels, height, width = image_shape
        values = channels * height * width
        if self.values.ndim != 2 or self.values.shape[1] not in (1, channels):
            return False
        limit = values // self.values.shape[1]
        inside = bool(((self.places >= 0) & (self.places < limit)).all())
        return inside and len(self.places) == len(self.values)
