import hashlib
import io
import json
import os
import pickle
import shutil
import stat
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from torchvision import datasets

from robust0.data import cifar, npm
from robust0.data.store import Arrays

PER_BATCH = 4


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Every test has a cache of its own, no network and no npm client."""
    monkeypatch.setenv("ROBUST0_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ROBUST0_OFFLINE", raising=False)
    monkeypatch.setattr(datasets.CIFAR10, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    monkeypatch.setattr(datasets.CIFAR100, "url", "http://127.0.0.1:9/cifar-100-python.tar.gz")
    monkeypatch.setattr("robust0.download.transfer._TRIES_WITHOUT_PROGRESS", 1)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "cache" / "data"


def random_arrays(count: int, classes: int, seed: int) -> Arrays:
    draws = np.random.default_rng(seed)
    images = draws.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return Arrays(images, draws.integers(0, classes, count, dtype=np.uint8))


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A CIFAR-10 of 20 + 4 images in every form, with the digests and md5s to match."""
    splits = {"train": random_arrays(5 * PER_BATCH, 10, 1), "test": random_arrays(PER_BATCH, 10, 2)}
    monkeypatch.setitem(cifar.DIGESTS, "cifar10", {k: v.digests() for k, v in splits.items()})
    monkeypatch.setattr(npm, "_SPRITE_SIZE", (1024, PER_BATCH))
    home = tmp_path / "forms"
    write_sprites(home / "sprites" / "package", splits)
    pack(home / "sprites" / "package", home / npm.ARCHIVE, "package")
    write_torchvision(home / "official", splits, monkeypatch)
    folder = home / "official" / "cifar-10-batches-py"
    pack(folder, home / "cifar-10-python.tar.gz", "cifar-10-batches-py")
    md5 = hashlib.md5((home / "cifar-10-python.tar.gz").read_bytes()).hexdigest()
    monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", md5)
    return SimpleNamespace(splits=splits, home=home)


def write_sprites(folder: Path, splits: dict[str, Arrays]) -> None:
    folder.mkdir(parents=True)
    names = [f"data_batch_{number}.png" for number in range(1, 6)]
    rows = splits["train"].images.reshape(5, PER_BATCH, 1024, 3)
    for name, sprite in zip(names, rows, strict=True):
        Image.fromarray(sprite).save(folder / name)
    Image.fromarray(splits["test"].images.reshape(-1, 1024, 3)).save(folder / "test_batch.png")
    for split, arrays in splits.items():
        (folder / f"{split}_lables.json").write_text(json.dumps(arrays.labels.tolist()))


def write_torchvision(root: Path, splits: dict[str, Arrays], monkeypatch) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)

    def dump(name: str, value: dict) -> str:
        (folder / name).write_bytes(pickle.dumps(value))
        return hashlib.md5((folder / name).read_bytes()).hexdigest()

    def batch(arrays: Arrays, rows: slice) -> dict:
        flat = arrays.images[rows].transpose(0, 3, 1, 2).reshape(-1, 3072)
        return {"data": flat, "labels": arrays.labels[rows].tolist()}

    train = [
        [f"data_batch_{n + 1}", dump(f"data_batch_{n + 1}", batch(splits["train"], rows))]
        for n, rows in enumerate(slice(k * PER_BATCH, (k + 1) * PER_BATCH) for k in range(5))
    ]
    test = [["test_batch", dump("test_batch", batch(splits["test"], slice(None)))]]
    names = dump("batches.meta", {"label_names": ["x"] * 10})
    monkeypatch.setattr(datasets.CIFAR10, "train_list", train)
    monkeypatch.setattr(datasets.CIFAR10, "test_list", test)
    meta = {"filename": "batches.meta", "key": "label_names", "md5": names}
    monkeypatch.setattr(datasets.CIFAR10, "meta", meta)


def pack(folder: Path, archive: Path, inside: str) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(folder.iterdir()):
            info = tarfile.TarInfo(f"{inside}/{path.name}")
            info.size = path.stat().st_size
            tar.addfile(info, io.BytesIO(path.read_bytes()))


@pytest.fixture
def fake_npm(tmp_path):
    """Puts a program called npm on PATH that runs the given shell lines where it is started."""

    def install(*lines: str) -> Path:
        program = tmp_path / "bin" / "npm"
        program.parent.mkdir(exist_ok=True)
        log = tmp_path / "npm.log"
        tools = {name: shutil.which(name, path="/usr/bin:/bin") for name in ("cp", "cat")}
        text = ["#!/bin/sh", f'echo "$@" >> {log}', *lines]
        body = "\n".join(text).replace("CP", tools["cp"] or "cp")
        program.write_text(body + "\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return log

    if os.name != "posix":
        pytest.skip("needs a shell")
    return install
