"""Decoded datasets on disk: plain uint8 arrays beside a manifest, re-verified on every open."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from robust0.data.catalogue import Split
from robust0.data.places import MANIFEST
from robust0.errors import DataError
from robust0.files import atomic, write_text

Pixels = npt.NDArray[np.uint8]

SPLITS: tuple[Split, Split] = ("train", "test")
_SCHEMA = 1
_REPAIR = "this copy is damaged or another version: replace it with robust0 data pull NAME"


@dataclass(frozen=True, slots=True)
class Arrays:
    """One split as it is stored and hashed: images (N, H, W, C) and labels (N,), both uint8."""

    images: Pixels
    labels: Pixels

    def digests(self) -> dict[str, str]:
        """The sha256 of either array's bytes."""
        return {"images": array_sha256(self.images), "labels": array_sha256(self.labels)}


def array_sha256(array: npt.NDArray[np.uint8]) -> str:
    """The hex sha256 of an array's bytes in C order."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def save(folder: Path, name: str, splits: Mapping[Split, Arrays], source: str) -> None:
    """Write a dataset so that a reader sees either all of it or nothing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        for split, arrays in splits.items():
            _write_array(_path(folder, split, "images"), arrays.images)
            _write_array(_path(folder, split, "labels"), arrays.labels)
        digests = {split: arrays.digests() for split, arrays in splits.items()}
        manifest = {"schema": _SCHEMA, "name": name, "source": source, "sha256": digests}
        write_text(folder / MANIFEST, json.dumps(manifest, indent=2))
    except OSError as problem:
        raise DataError(
            f"cannot write {problem.filename or folder}: {problem.strerror or problem}",
            "check the disk's free space and the folder's permissions",
        ) from problem


def load_arrays(
    folder: Path, name: str, split: Split, expected: Mapping[str, str] | None = None
) -> Arrays:
    """Read one split and verify it, by default with the digests written when it was decoded."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if (manifest["schema"], manifest["name"]) != (_SCHEMA, name):
            raise ValueError(f"it holds {manifest['name']}, schema {manifest['schema']}")
        expected = expected or manifest["sha256"][split]
        arrays = Arrays(
            np.load(_path(folder, split, "images"), allow_pickle=False),
            np.load(_path(folder, split, "labels"), allow_pickle=False),
        )
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise DataError(
            f"the decoded {name} in {folder} cannot be read: {problem}", _REPAIR
        ) from problem
    require_digests(arrays, expected, folder)
    return arrays


def require_digests(
    arrays: Arrays, expected: Mapping[str, str], where: Path, hint: str = _REPAIR
) -> None:
    """Refuse arrays that are not the expected ones, naming both hashes."""
    for part, actual in arrays.digests().items():
        if actual != expected[part]:
            raise DataError(
                f"wrong {part} in {where}: expected sha256 {expected[part]}, got {actual}",
                hint,
            )


def _path(folder: Path, split: Split, part: str) -> Path:
    return folder / f"{split}_{part}.npy"


def _write_array(path: Path, array: Pixels) -> None:
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)
