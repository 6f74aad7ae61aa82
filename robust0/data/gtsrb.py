"""GTSRB road signs at 32x32: official archives or torchvision's folder layout, decoded once."""

import csv
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock

from robust0.data import store
from robust0.data.archives import unzip
from robust0.data.catalogue import Split, Variant
from robust0.data.decoding import decode_all
from robust0.data.imageset import DataOrigin, TensorSet
from robust0.data.places import data_cache, is_decoded
from robust0.data.store import Arrays
from robust0.download import acquired, fetch
from robust0.errors import DataError
from robust0.events import Transfer
from robust0.rng import Stream

_SIDE = 32
_PAPER_TEST_IMAGES = 1000
_HOST = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370"
# The two test archives are torchvision's. Its training archive is the 26,640 images of the 2011
# online competition, so the benchmark's full training set of 39,209 is taken from the same host.
_ARCHIVES = {
    "GTSRB_Final_Training_Images.zip": "f33fd80ac59bff73c82d25ab499e03a3",
    "GTSRB_Final_Test_Images.zip": "c7e4e6327067d32654124b0fe9e82185",
    "GTSRB_Final_Test_GT.zip": "fe31e9c9270bbcd7b84b7f21a9d9d9e5",
}
_LABELS = "GT-final_test.csv"


def find(root: Path) -> Path | None:
    """The folder inside ``root`` that holds the dataset, decoded or as images."""
    for folder in (root / "gtsrb", root):
        if is_decoded(folder) or _training(folder) is not None:
            return folder
    return None


def read(split: Split, place: Path) -> Arrays:
    """One official split; a folder of images is decoded once and kept in the cache."""
    if is_decoded(place):
        return store.load_arrays(place, "gtsrb", split)
    files, labels = _list(place, split)
    cached = data_cache() / "decoded" / f"gtsrb-{split}-{_state(place, files)}"
    cached.mkdir(parents=True, exist_ok=True)
    with FileLock(cached / "decode.lock"):
        if not is_decoded(cached):
            store.save(cached, "gtsrb", {split: _decode(files, labels)}, str(place))
    return store.load_arrays(cached, "gtsrb", split)


def select(arrays: Arrays, split: Split, variant: Variant, origin: DataOrigin) -> TensorSet:
    """A set out of the arrays of the official split, or of the training archive for ``paper``.

    WARNING: ``paper`` leaks. Like the split of the released sparse-attack code it holds 1,000
    images drawn at random (seed 0) out of the *training* archive for test and trains on the rest,
    but that archive consists of tracks, about 30 near-identical photographs of one sign, so most
    test images have their twins in training. The thousand drawn here are not those of that code.
    """
    pixels = torch.from_numpy(arrays.images).permute(0, 3, 1, 2).contiguous()
    whole = TensorSet(origin, pixels, torch.from_numpy(arrays.labels).long())
    if variant == "official":
        return whole
    order = Stream.of(0, "gtsrb", "paper").permutation(len(whole))
    test, train = order[:_PAPER_TEST_IMAGES], order[_PAPER_TEST_IMAGES:]
    return whole.subset((test if split == "test" else train).sort().values)


def pull(root: Path) -> Iterator[Transfer]:
    """Make sure that ``root`` holds both splits; fetch, unpack and decode them if not."""
    folder = root / "gtsrb"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "pull.lock", thread_local=False)
    try:
        while not acquired(lock):
            yield Transfer("gtsrb", 0, None)
        if _already(root, folder):
            return
        try:
            for name, md5 in _ARCHIVES.items():
                yield from fetch(f"{_HOST}/{name}", folder / name, md5=md5, error=DataError)
        except DataError as problem:
            raise DataError(
                f"gtsrb cannot be fetched: {problem.message}",
                "give --data-dir DIR with torchvision's gtsrb folder",
            ) from problem
        unpacked = folder / "unpacked"
        for name in _ARCHIVES:
            unzip(folder / name, unpacked)
        splits = {split: _decode(*_list(unpacked, split)) for split in store.SPLITS}
        store.save(folder, "gtsrb", splits, _HOST)
        shutil.rmtree(unpacked)
        for name in _ARCHIVES:
            (folder / name).unlink()
    finally:
        lock.release()


def _already(root: Path, folder: Path) -> bool:
    """Whether both splits are there and verify; our own damaged copy is as good as none."""
    place = find(root)
    if place is None:
        return False
    try:
        for split in store.SPLITS:
            read(split, place)
    except DataError:
        if place != folder or not is_decoded(place):
            raise
        return False
    return True


def _training(folder: Path) -> Path | None:
    """The folder of class folders: torchvision's name for it, or the full archive's."""
    for name in ("GTSRB/Training", "GTSRB/Final_Training/Images"):
        if (folder / name).is_dir():
            return folder / name
    return None


def _list(place: Path, split: Split) -> tuple[list[Path], list[int]]:
    """Files and labels in official order: by class and name for train, by the list for test."""
    training = _training(place)
    try:
        if split == "train" and training is not None:
            files = sorted(training.glob("*/*.ppm"))
            labels = [int(path.parent.name) for path in files]
        else:
            folder = place / "GTSRB" / "Final_Test" / "Images"
            with (place / _LABELS).open(newline="") as file:
                rows = list(csv.DictReader(file, delimiter=";", skipinitialspace=True))
            files = [folder / row["Filename"] for row in rows]
            labels = [int(row["ClassId"]) for row in rows]
    except (OSError, ValueError, KeyError) as problem:
        raise DataError(
            f"the {split} split of GTSRB in {place} cannot be listed: {problem}",
            "expected GTSRB/Training/*/*.ppm, GTSRB/Final_Test/Images/*.ppm and " + _LABELS,
        ) from problem
    if not files or not 0 <= min(labels) <= max(labels) < 43:
        raise DataError(
            f"GTSRB in {place}: expected {split} images with labels 0..42, got {len(files)} images",
            "unpack the whole archive there",
        )
    return files, labels


def _decode(files: list[Path], labels: list[int]) -> Arrays:
    pixels = decode_all(files, _shrink)
    return Arrays(pixels.permute(0, 2, 3, 1).contiguous().numpy(), np.array(labels, np.uint8))


def _shrink(image: torch.Tensor) -> torch.Tensor:
    if image.shape[1:] == (_SIDE, _SIDE):
        return image
    from torchvision.transforms.v2 import functional  # seconds to import; rarely needed

    small: torch.Tensor = functional.resize(image, [_SIDE, _SIDE], antialias=True)
    return small


def _state(place: Path, files: list[Path]) -> str:
    """Names the present content of a folder, so that a changed one is decoded again."""
    digest = hashlib.sha256(str(place.resolve()).encode())
    for path in files:
        try:
            facts = path.stat()
        except OSError as problem:
            raise DataError(
                f"cannot read {path}: {problem.strerror}", "unpack it again"
            ) from problem
        digest.update(f"{path.name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
