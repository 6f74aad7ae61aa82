"""Perturbed images on disk, sparsely: which sites changed, and to what; numpy only, no torch.

A file holds M attempts: ``image``, ``attack`` (a position in the metadata's list of names) and
``budget``, each (M,) int64; ``start`` (M + 1,) int64; ``sites`` (N,) int32 and ``values`` (N, g)
float32. Attempt i changes ``sites[start[i]:start[i + 1]]``. A site is a pixel, numbered row by row,
with its g = C values; or, counted in features, a position in the flattened (C, H, W) image, g = 1.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from robust0.errors import RunError
from robust0.files import atomic
from robust0.records import Unit

Key = tuple[int, str, int]  # (budget, attack, image)
_NOTES = "robust0"
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Sparse:
    """One attempt."""

    sites: npt.NDArray[np.int32]  # (n,)
    values: npt.NDArray[np.float32]  # (n, g)


@dataclass(frozen=True, slots=True)
class Attempts:
    """Attempts by budget, attack and image."""

    unit: Unit
    image_shape: tuple[int, int, int]
    found: Mapping[Key, Sparse]

    def paint(self, key: Key, clean: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The perturbed image, from the clean (C, H, W) one in [0, 1]."""
        attempt = self.found[key]
        flat = np.array(clean, dtype=np.float32).reshape(attempt.values.shape[1], -1)
        flat[:, attempt.sites] = attempt.values.T
        return flat.reshape(clean.shape)


def write_attempts(path: Path, attempts: Attempts) -> None:
    """Write attempts atomically and durably, in the order of their keys in the mapping."""
    names = list(dict.fromkeys(attack for _, attack, _ in attempts.found))
    number = {name: position for position, name in enumerate(names)}
    keys, items = list(attempts.found), list(attempts.found.values())
    groups = attempts.image_shape[0] if attempts.unit == "pixel" else 1
    sizes = [len(item.sites) for item in items]
    tensors: dict[str, npt.NDArray[Any]] = {
        "image": np.array([image for _, _, image in keys], dtype=np.int64),
        "attack": np.array([number[attack] for _, attack, _ in keys], dtype=np.int64),
        "budget": np.array([budget for budget, _, _ in keys], dtype=np.int64),
        "start": np.cumsum([0, *sizes], dtype=np.int64),
        "sites": np.concatenate([np.empty(0, np.int32), *(item.sites for item in items)]),
        "values": np.concatenate(
            [np.empty((0, groups), np.float32), *(item.values for item in items)]
        ),
    }
    shape = list(attempts.image_shape)
    notes = {"schema": _SCHEMA, "unit": attempts.unit, "image_shape": shape, "attacks": names}
    with atomic(path) as temporary:
        temporary.write_bytes(save(tensors, metadata={_NOTES: json.dumps(notes)}))


def read_attempts(path: Path) -> Attempts:
    """All attempts of a file."""
    try:
        with safe_open(path, framework="numpy") as file:
            notes = json.loads((file.metadata() or {})[_NOTES])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if notes["schema"] != _SCHEMA:
            raise ValueError(f"schema {notes['schema']}")
        channels, height, width = notes["image_shape"]
        start, names = arrays["start"].tolist(), notes["attacks"]
        columns = zip(
            arrays["budget"].tolist(), arrays["attack"].tolist(), arrays["image"].tolist(),
            start[:-1], start[1:], strict=True,
        )  # fmt: skip
        found = {
            (budget, names[attack], image): Sparse(
                arrays["sites"][begin:end], arrays["values"][begin:end]
            )
            for budget, attack, image, begin, end in columns
        }
        return Attempts(notes["unit"], (channels, height, width), found)
    except (SafetensorError, OSError, KeyError, ValueError, IndexError) as problem:
        raise RunError(
            f"the attempts in {path} cannot be read: {problem}", "start the audit anew"
        ) from problem


def merged(files: Iterable[Path]) -> dict[Key, Sparse]:
    """The attempts of several files; equal keys hold equal attempts."""
    found: dict[Key, Sparse] = {}
    for path in files:
        found |= read_attempts(path).found
    return found
