"""Image files as tensors."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from robust0.errors import DataError

T = TypeVar("T")
_DECODERS = 8
_NAMED = 20  # unreadable files that a message names
_BROKEN = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


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
    return _each(_pixels, [path])[0]


def decode_all(paths: Sequence[Path], view: Callable[[Tensor], Tensor]) -> Tensor:
    """Several files, each through ``view``, stacked; files that cannot be read are all named."""
    return torch.stack(_each(lambda path: view(_pixels(path)), paths))


def require_readable(paths: Sequence[Path]) -> None:
    """Refuse files that cannot be decoded, naming all of them."""
    _each(lambda path: _pixels(path).shape, paths)


def sizes(paths: Sequence[Path]) -> Counter[tuple[int, int]]:
    """How many images there are of each (width, height), from their headers alone."""
    return Counter(_each(_size, paths))


def _size(path: Path) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


def _pixels(path: Path) -> Tensor:
    with Image.open(path) as picture:
        return torch.from_numpy(np.array(picture.convert("RGB"))).permute(2, 0, 1)


def _each(read: Callable[[Path], T], paths: Sequence[Path]) -> list[T]:
    """What ``read`` makes of each file; Pillow works outside Python's lock."""

    def attempt(path: Path) -> T | Exception:
        try:
            return read(path)
        except _BROKEN as problem:
            return problem

    with ThreadPoolExecutor(_DECODERS) as pool:
        made = list(pool.map(attempt, paths))
    broken = [(p, item) for p, item in zip(paths, made, strict=True) if isinstance(item, Exception)]
    if broken:
        raise _unreadable(broken) from broken[0][1]
    return [item for item in made if not isinstance(item, Exception)]


def _unreadable(broken: Sequence[tuple[Path, Exception]]) -> DataError:
    if len(broken) == 1:
        path, problem = broken[0]
        return DataError(f"cannot read the image {path}: {problem}", "repair or remove the file")
    names = ", ".join(str(path) for path, _ in broken[:_NAMED])
    more = f" and {len(broken) - _NAMED:,} more" if len(broken) > _NAMED else ""
    return DataError(
        f"cannot read {len(broken):,} images: {names}{more}", "repair or remove these files"
    )
