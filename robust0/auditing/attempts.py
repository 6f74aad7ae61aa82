"""Perturbed images on disk: what differs from the clean ones; numpy only, no torch.

A file holds M attempts: ``image`` and ``attack`` (a position in the metadata's list of names), each
(M,) int64; ``budget`` (M,) float64; ``start`` (M + 1,) int64; ``places`` (N,) int32 and ``values``
(N, g) float32. Attempt i changes ``places[start[i]:start[i + 1]]``; see
:class:`robust0.threats.perturbation.Perturbation`. Schema 1 called places sites.
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
from robust0.records import Amount, Unit
from robust0.threats.perturbation import Perturbation

Key = tuple[Amount, str, int]  # (budget, attack, image)
_NOTES = "robust0"
_SCHEMA = 2


@dataclass(frozen=True, slots=True)
class Attempts:
    """Attempts by budget, attack and image."""

    unit: Unit
    image_shape: tuple[int, int, int]
    found: Mapping[Key, Perturbation]

    def paint(self, key: Key, clean: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The perturbed image, from the clean (C, H, W) one in [0, 1]."""
        return self.found[key].paint(clean)


def write_attempts(path: Path, attempts: Attempts) -> None:
    """Write attempts atomically and durably, in the order of their keys in the mapping."""
    names = list(dict.fromkeys(attack for _, attack, _ in attempts.found))
    number = {name: position for position, name in enumerate(names)}
    keys, items = list(attempts.found), list(attempts.found.values())
    groups = 1 if attempts.unit == "feature" else attempts.image_shape[0]
    sizes = [len(item.places) for item in items]
    tensors: dict[str, npt.NDArray[Any]] = {
        "image": np.array([image for _, _, image in keys], dtype=np.int64),
        "attack": np.array([number[attack] for _, attack, _ in keys], dtype=np.int64),
        "budget": np.array([budget for budget, _, _ in keys], dtype=np.float64),
        "start": np.cumsum([0, *sizes], dtype=np.int64),
        "places": np.concatenate([np.empty(0, np.int32), *(item.places for item in items)]),
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
        if notes["schema"] not in (1, _SCHEMA):
            raise ValueError(f"schema {notes['schema']}")
        channels, height, width = notes["image_shape"]
        start, names = arrays["start"].tolist(), notes["attacks"]
        places = arrays["sites" if notes["schema"] == 1 else "places"]
        columns = zip(
            arrays["budget"].tolist(), arrays["attack"].tolist(), arrays["image"].tolist(),
            start[:-1], start[1:], strict=True,
        )  # fmt: skip
        found = {
            (_whole(budget), names[attack], image): Perturbation(
                places[begin:end], arrays["values"][begin:end]
            )
            for budget, attack, image, begin, end in columns
        }
        return Attempts(notes["unit"], (channels, height, width), found)
    except (SafetensorError, OSError, KeyError, ValueError, IndexError) as problem:
        raise RunError(
            f"the attempts in {path} cannot be read: {problem}", "start the audit anew"
        ) from problem


def merged(files: Iterable[Path]) -> dict[Key, Perturbation]:
    """The attempts of several files; equal keys hold equal attempts."""
    found: dict[Key, Perturbation] = {}
    for path in files:
        found |= read_attempts(path).found
    return found


def _whole(budget: float) -> Amount:
    return int(budget) if float(budget).is_integer() else budget
