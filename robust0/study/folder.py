"""A study's folder: one subfolder of finished units per part, so that a killed study goes on.

``PART/job.json`` says what the part is about, ``PART/NAME.json`` holds a finished unit,
``PART/NAME.safetensors`` tensors that later units need, ``PART.json`` the result.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from robust0.errors import RunError
from robust0.files import atomic, remove_stale, write_text

Json = dict[str, Any]
SCHEMA = 1
_JOB = "job.json"
_TENSOR = "tensor"


class UnitStore:
    """Where finished units are kept: in a folder, or in memory if there is none."""

    def __init__(self, folder: Path | None, part: str) -> None:
        self.folder = None if folder is None else folder / part
        self._kept: dict[str, Json] = {}
        self._tensors: dict[str, Tensor] = {}

    def open(self, identity: Mapping[str, Any]) -> None:
        """Make ready; a folder of another study is refused, naming what differs."""
        if self.folder is None:
            return
        said = json.loads(json.dumps(identity))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_stale(self.folder)
            path = self.folder / _JOB
            if path.exists():
                self._compare(_read(path), said)
            else:
                write_text(path, _text(said))
        except OSError as problem:
            raise RunError(
                f"cannot write to {self.folder}: {problem.strerror}", "choose another -o"
            ) from problem

    def _compare(self, before: Json, now: Json) -> None:
        names = [*before, *(name for name in now if name not in before)]
        changed = [name for name in names if before.get(name) != now.get(name)]
        if changed:
            raise RunError(
                f"{self.folder} holds a study with another {', '.join(changed)}",
                "repeat its command to go on with it, or choose another -o",
            )

    def get(self, name: str) -> Json | None:
        """A finished unit, or None."""
        if self.folder is None:
            return self._kept.get(name)
        path = self.folder / f"{name}.json"
        return _read(path) if path.exists() else None

    def put(self, name: str, result: Json) -> Json:
        """Keep a finished unit; what comes back is what a resumed study would read."""
        text = _text(result)
        if self.folder is None:
            self._kept[name] = json.loads(text)
        else:
            write_text(self.folder / f"{name}.json", text)
        return json.loads(text)  # type: ignore[no-any-return]

    def put_tensor(self, name: str, tensor: Tensor) -> None:
        """Keep a tensor that later units need; before the unit that says it is there."""
        if self.folder is None:
            self._tensors[name] = tensor
            return
        with atomic(self.folder / f"{name}.safetensors") as temporary:
            save_file({_TENSOR: tensor.contiguous()}, temporary)

    def tensor(self, name: str) -> Tensor:
        """A tensor kept by an earlier unit."""
        if self.folder is None:
            return self._tensors[name]
        path = self.folder / f"{name}.safetensors"
        try:
            return load_file(path)[_TENSOR]
        except (OSError, SafetensorError, KeyError) as problem:
            raise RunError(f"{path} cannot be read: {problem}", "start the study anew") from problem


def write_result(folder: Path, document: Json) -> Path:
    """PART.json, whole or not at all."""
    path = folder / f"{document['part']}.json"
    write_text(path, _text(document))
    return path


def read_results(folder: Path, parts: tuple[str, ...]) -> list[Json]:
    """The results in a folder, in the order of the parts."""
    paths = (folder / f"{part}.json" for part in parts)
    return [_read(path) for path in paths if path.exists()]


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _read(path: Path) -> Json:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise RunError(f"{path} is damaged: {problem}", "start the study anew") from problem
    if not isinstance(found, dict):
        raise RunError(f"{path} is damaged: it is not a JSON object", "start the study anew")
    return found
