"""Images in a numpy .npz file, every claim of which is checked before an array is allocated.

The arrays are ``images``, uint8 (N, H, W, C) with 1 or 3 channels or (N, H, W), and ``labels``,
integers (N,); or ``train_images``, ``train_labels``, ``test_images``, ``test_labels`` for a file
that is divided. ``class_names``, strings by label, may be added; by default classes are numbered.
"""

import errno
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from robust0.data.catalogue import Split
from robust0.data.imageset import DataOrigin, TensorSet
from robust0.errors import DataError

_MOST_BYTES = 8 << 30
_MOST_CLASSES = 100_000


@dataclass(frozen=True, slots=True)
class _Header:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def open_npz(name: str, path: Path, split: Split) -> TensorSet:
    """One split of a file, or all of an undivided one, whose split is then called "all"."""
    with _reading(name, path), zipfile.ZipFile(path) as packed:
        _require_size(name, packed)
        headers = {
            info.filename.removesuffix(".npy"): _header(name, packed, info)
            for info in packed.infolist()
        }
        prefix, found = _choose(name, headers, split)
        _check_images(name, f"{prefix}images", headers[f"{prefix}images"])
        _check_labels(name, prefix, headers)
        _require_memory(name, headers[f"{prefix}images"])
        images = _array(packed, f"{prefix}images")
        labels = _array(packed, f"{prefix}labels").astype(np.int64)
        class_names = _class_names(name, packed, headers)
    if images.ndim == 3:
        images = images[..., None]
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    origin = DataOrigin(name, found, class_names, str(path.absolute()))
    return TensorSet(origin, pixels, torch.from_numpy(labels))


@contextmanager
def _reading(name: str, path: Path) -> Iterator[None]:
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
        yield
    except FileNotFoundError as problem:
        raise DataError(f"{name}: there is no file {path}", "check the path") from problem
    except OSError as problem:
        raise DataError(
            f"{name}: cannot read {path}: {problem.strerror or problem}", "check the path"
        ) from problem
    except MemoryError as problem:
        raise _too_large(name) from problem
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError) as problem:
        raise DataError(
            f"{name}: {path} is not a whole .npz file: {problem}",
            "write it with numpy.savez_compressed(path, images=..., labels=...)",
        ) from problem


def _require_size(name: str, packed: zipfile.ZipFile) -> None:
    size = sum(info.file_size for info in packed.infolist())
    if size > _MOST_BYTES:
        raise DataError(
            f"{name}: unpacks to {size} bytes, more than the {_MOST_BYTES} allowed",
            "use folder:PATH for a dataset that large",
        )


def _require_memory(name: str, images: _Header) -> None:
    free = available_memory()
    if free is not None and 2 * math.prod(images.shape) > free:  # read, then turned around
        raise _too_large(name)


def available_memory() -> int | None:
    """Bytes that can be had without swapping, where the system says so."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, IndexError):
        return None
    return int(found) * 1024


def _too_large(name: str) -> DataError:
    return DataError(
        f"{name}: its images do not fit into the free memory",
        "use folder:PATH, which reads images as they are needed, or a smaller file",
    )


def _header(name: str, packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Header:
    """An array's claimed shape and type, which must account for exactly the bytes that follow."""
    with packed.open(info) as file:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, _, dtype = np.lib.format.read_array_header_2_0(file)
        body = info.file_size - file.tell()
    if dtype.hasobject:
        raise DataError(
            f"{name}: {info.filename} holds Python objects", "store plain numbers or strings"
        )
    if math.prod(shape) * dtype.itemsize != body:
        raise DataError(
            f"{name}: {info.filename} claims {shape} of {dtype}, but holds {body} bytes",
            "the file is damaged: write it again",
        )
    return _Header(shape, dtype)


def _choose(name: str, headers: dict[str, _Header], split: Split) -> tuple[str, str]:
    """The prefix of the arrays to read, and the split that they really are."""
    for prefix, found in ((f"{split}_", split), ("", "all")):
        if {f"{prefix}images", f"{prefix}labels"} <= headers.keys():
            return prefix, found
    raise DataError(
        f"{name}: expected arrays images and labels, or {split}_images and {split}_labels, "
        f"got {', '.join(sorted(headers)) or 'none'}",
        "rename the arrays",
    )


def _check_images(name: str, key: str, header: _Header) -> None:
    if header.dtype != np.uint8:
        raise DataError(
            f"{name}: {key} must be uint8, got {header.dtype}",
            "store pixels as 0..255: (images * 255).round().astype('uint8') if they are in [0, 1]",
        )
    grey = len(header.shape) == 3
    if not grey and (len(header.shape) != 4 or header.shape[3] not in (1, 3)):
        raise DataError(
            f"{name}: {key} must be (N, H, W, 3), (N, H, W, 1) or (N, H, W), got {header.shape}",
            "move the channels last: images.transpose(0, 2, 3, 1)",
        )
    if 0 in header.shape:
        raise DataError(f"{name}: {key} is empty: {header.shape}", "give at least one image")


def _check_labels(name: str, prefix: str, headers: dict[str, _Header]) -> None:
    labels, images = headers[f"{prefix}labels"], headers[f"{prefix}images"]
    if labels.dtype.kind not in "iu":
        raise DataError(
            f"{name}: {prefix}labels must be integers, got {labels.dtype}",
            "store class numbers from 0",
        )
    if labels.shape != images.shape[:1]:
        raise DataError(
            f"{name}: expected {images.shape[0]} labels, one per image, got shape {labels.shape}",
            "give a flat array with one label per image",
        )


def _class_names(
    name: str, packed: zipfile.ZipFile, headers: dict[str, _Header]
) -> tuple[str, ...]:
    """Names by label; without any, as many numbers as the labels of both splits need."""
    keys = [key for key in ("labels", "train_labels", "test_labels") if key in headers]
    labels = [_array(packed, key) for key in keys if headers[key].dtype.kind in "iu"]
    lowest = min(int(array.min()) for array in labels if array.size)
    highest = max(int(array.max()) for array in labels if array.size)
    header = headers.get("class_names")
    if header is None:
        names = tuple(str(label) for label in range(min(highest + 1, _MOST_CLASSES)))
    elif header.dtype.kind == "U" and len(header.shape) == 1:
        names = tuple(str(text) for text in _array(packed, "class_names"))
    else:
        raise DataError(
            f"{name}: class_names must be a flat array of strings, got {header.dtype}",
            "store numpy.array([...], dtype=str)",
        )
    if lowest < 0 or highest >= len(names):
        raise DataError(
            f"{name}: labels must lie in 0..{len(names) - 1}, got {lowest}..{highest}",
            "renumber the labels from zero, or complete class_names",
        )
    return names


def _array(packed: zipfile.ZipFile, key: str) -> npt.NDArray[Any]:
    with packed.open(f"{key}.npy") as file:
        return np.lib.format.read_array(file, allow_pickle=False)
