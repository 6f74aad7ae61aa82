"""Image files as tensors."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from robust0.errors import DataError

_DECODERS = 8


def to_unit(pixels: Tensor) -> Tensor:
    """Uint8 pixels as float32 in [0, 1]."""
    return pixels.to(torch.float32) / 255


def evaluation_view(image: Tensor, size: int) -> Tensor:
    """(C, size, size) uint8: the shorter side scaled to 8/7 of ``size``, the centre cut out."""
    from torchvision.transforms.v2 import functional  # seconds to import, and only files need it

    scaled = functional.resize(image, [round(size * 256 / 224)], antialias=True)
    view: Tensor = functional.center_crop(scaled, [size, size])
    return view


def decode(path: Path) -> Tensor:
    """One image file as (3, H, W) uint8."""
    try:
        with Image.open(path) as picture:
            array = np.array(picture.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as problem:
        raise DataError(
            f"cannot read the image {path}: {problem}", "repair or remove the file"
        ) from problem
    return torch.from_numpy(array).permute(2, 0, 1)


def decode_all(paths: list[Path], view: Callable[[Tensor], Tensor]) -> Tensor:
    """Several files, each through ``view``, stacked; Pillow decodes outside Python's lock."""
    with ThreadPoolExecutor(_DECODERS) as pool:
        return torch.stack(list(pool.map(lambda path: view(decode(path)), paths)))
