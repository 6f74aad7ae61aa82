"""From the name of a device to a torch.device, once, at the start of a command."""

import re

import torch

from robust0.errors import RecipeError

_HINT = "use auto, cpu, cuda, cuda:N or mps"


def resolve(name: str) -> torch.device:
    """The device of this name; ``auto`` is the first CUDA device, else the CPU.

    ``auto`` never means mps: some draws need float64, which that backend lacks.
    """
    match = re.fullmatch(r"(auto|cpu|mps|cuda)(?::(\d{1,4}))?", name.strip().lower())
    if match is None or (match[2] is not None and match[1] != "cuda"):
        raise RecipeError(f"unknown device {name!r}", _HINT)
    kind, index = match[1], match[2]
    if kind == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda":
        return _cuda(None if index is None else int(index))
    if kind == "mps" and not torch.backends.mps.is_available():
        raise RecipeError("this machine has no mps device", "use --device cpu")
    return torch.device(kind)


def _cuda(index: int | None) -> torch.device:
    if not torch.cuda.is_available():
        built = torch.version.cuda is not None
        reason = "no usable NVIDIA or AMD GPU" if built else "torch was installed without CUDA"
        raise RecipeError(f"cuda is not available: {reason}", "use --device cpu, or auto")
    count = torch.cuda.device_count()
    if index is not None and index >= count:
        raise RecipeError(
            f"there is no cuda:{index}, this machine has {count} CUDA devices",
            f"use a number from 0 to {count - 1}",
        )
    return torch.device("cuda" if index is None else f"cuda:{index}")
