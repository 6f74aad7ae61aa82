"""The sample inside the package: the first 1,000 training and test images of CIFAR-10."""

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
from PIL import Image

from robust0.data.catalogue import Split
from robust0.data.store import Arrays, require_digests
from robust0.errors import DataError

DIGESTS: dict[Split, dict[str, str]] = {
    "train": {
        "images": "133c5674fd1c56ceeeb944ddcdc368da2593ce5b67acfa216ab83f98a084f388",
        "labels": "b8cafe516962919f3ee044659c975957f7d0bec97d0268dad47d4a1e3109c091",
    },
    "test": {
        "images": "da362006b99671213d1a5d856cab2bedf64d40bad4501630ee60f4ceb2d3ec7f",
        "labels": "636a087e604331a0b9dafc94b6e9ade0c9cec72c4400d12473ccdb3e264474c1",
    },
}
_HINT = "reinstall robust0: pip install --force-reinstall robust0"
_ROWS, _COLUMNS, _SIDE = 25, 40, 32


def folder() -> Path:
    """Where the sample lies in this installation."""
    return Path(str(files("robust0"))) / "data" / "sample"


def read(split: Split, place: Path | None = None) -> Arrays:
    """Decode one split from its sheet of small pictures, and verify it."""
    place = place or folder()
    try:
        with Image.open(place / f"{split}.png") as sheet:
            tiles = np.asarray(sheet).reshape(_ROWS, _SIDE, _COLUMNS, _SIDE, 3)
        labels = np.array(json.loads((place / "labels.json").read_text())[split], dtype=np.uint8)
    except (OSError, ValueError, KeyError, SyntaxError) as problem:
        raise DataError(
            f"the embedded sample in {place} cannot be read: {problem}", _HINT
        ) from problem
    arrays = Arrays(tiles.transpose(0, 2, 1, 3, 4).reshape(-1, _SIDE, _SIDE, 3), labels)
    require_digests(arrays, DIGESTS[split], place, _HINT)
    return arrays
