"""The state of a training run on disk: safetensors plus JSON, atomic, the last two kept."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from robust0.errors import RunError
from robust0.files import atomic
from robust0.runs.folder import writing

KEPT = 2
_SCHEMA = 2  # 1 knew no state of a method but its table of soft labels


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a run needs to go on exactly where it was, after ``step`` optimiser steps."""

    step: int
    network: dict[str, Tensor]
    optimizer: dict[str, Any]  # torch's state_dict
    method: dict[str, Tensor]  # what the method remembers
    averaging: dict[str, Tensor]
    identity: dict[str, Any]  # what must be equal for a resume
    memory: dict[str, Any]  # best probe so far, alarms, loss scaler: plain JSON


def save(folder: Path, snapshot: Snapshot) -> Path:
    """Write a snapshot and drop all but the last two."""
    tensors = {f"network.{name}": value for name, value in snapshot.network.items()}
    numbers: dict[str, dict[str, Any]] = {}
    for index, slots in snapshot.optimizer["state"].items():
        for name, value in slots.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value
            else:
                numbers.setdefault(str(index), {})[name] = value
    tensors |= {f"method.{name}": value for name, value in snapshot.method.items()}
    tensors |= {f"averaging.{name}": value for name, value in snapshot.averaging.items()}
    header = {
        "schema": _SCHEMA,
        "step": snapshot.step,
        "optimizer": {"numbers": numbers, "groups": snapshot.optimizer["param_groups"]},
        "identity": snapshot.identity,
        "memory": snapshot.memory,
    }
    target = folder / f"snapshot-{snapshot.step:09d}.safetensors"
    cpu = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    with writing(folder, "harden"), atomic(target) as temporary:
        try:
            save_file(cpu, temporary, {"robust0-snapshot": json.dumps(header)})
        except SafetensorError as problem:  # what its writer makes of a full disk
            raise OSError(str(problem)) from problem
    for old in _paths(folder)[:-KEPT]:
        old.unlink(missing_ok=True)
    return target


def latest(folder: Path, device: torch.device) -> Snapshot | None:
    """The newest snapshot that can be read, or None if the run has none."""
    problem: Exception | None = None
    for path in reversed(_paths(folder)):
        try:
            return _read(path, device)
        except (SafetensorError, KeyError, ValueError, OSError) as trouble:
            problem = trouble
    if problem is not None:
        raise RunError(
            f"no snapshot in {folder} can be read: {problem}", "start the run anew with another -o"
        )
    return None


def check_same_training(snapshot: Snapshot, expected: dict[str, Any]) -> None:
    """Refuse to continue a run under other settings, naming the first difference."""
    for key, value in expected.items():
        before = snapshot.identity.get(key)
        if before != value:
            raise RunError(
                f"cannot resume: {key} was {before!r}, now {value!r}",
                "use the settings of the first start, or another -o for a new run",
            )


def _read(path: Path, device: torch.device) -> Snapshot:
    with safe_open(path, framework="pt", device=str(device)) as file:
        header = json.loads(file.metadata()["robust0-snapshot"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    if header["schema"] != _SCHEMA:
        raise RunError(
            f"{path} was written by another robust0 (form {header['schema']}, here {_SCHEMA})",
            "resume with the robust0 that started the run, or start anew with another -o",
        )
    state: dict[int, dict[str, Any]] = {
        int(index): dict(numbers) for index, numbers in header["optimizer"]["numbers"].items()
    }
    groups: dict[str, dict[str, Tensor]] = {"network": {}, "method": {}, "averaging": {}}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        if part == "optimizer":
            index, _, slot = rest.partition(".")
            state.setdefault(int(index), {})[slot] = value
        else:
            groups[part][rest] = value
    return Snapshot(
        step=header["step"],
        optimizer={"state": state, "param_groups": header["optimizer"]["groups"]},
        **groups,
        identity=header["identity"],
        memory=header["memory"],
    )


def _paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("snapshot-*.safetensors"))
