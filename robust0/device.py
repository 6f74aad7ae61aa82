"""From the name of a device to a torch.device, and how an audit makes the most of one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from robust0.errors import RecipeError

if TYPE_CHECKING:
    import torch

Precision = Literal["fp32", "bf16"]
MOST_LANES = 4  # more threads would wait for each other in the interpreter
_HINT = "use auto, cpu, cuda, cuda:N or mps"


def parse_device(name: str) -> tuple[str, int | None]:
    """A device's kind and number; refuses other words without importing torch."""
    match = re.fullmatch(r"(auto|cpu|mps|cuda)(?::(\d{1,4}))?", name.strip().lower())
    if match is None or (match[2] is not None and match[1] != "cuda"):
        raise RecipeError(f"unknown device {name!r}", _HINT)
    return match[1], None if match[2] is None else int(match[2])


def resolve_device(name: str) -> torch.device:
    """The device of this name; ``auto`` is the first CUDA device, else the CPU.

    ``auto`` never means mps: some draws need float64, which that backend lacks.
    """
    import torch

    kind, index = parse_device(name)
    if kind == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda":
        return _cuda(index)
    if kind == "mps" and not torch.backends.mps.is_available():
        raise RecipeError("this machine has no mps device", "use --device cpu")
    return torch.device(kind)


def _cuda(index: int | None) -> torch.device:
    import torch

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


def share_cores(device: torch.device, threads: int | None = None) -> tuple[int, int]:
    """How many model calls to make at once, and the threads of each, for searching on a device.

    On a CPU two calls of one thread each take less time than two calls, one after the other, of two
    threads; and a call of one thread rounds the same on any number of cores. ``threads`` fixes the
    threads of a call.
    """
    import torch

    cores = torch.get_num_threads()
    if device.type != "cpu":
        return 1, cores
    if threads is not None:
        return max(1, min(MOST_LANES, cores // threads)), threads
    lanes = min(MOST_LANES, cores)
    return lanes, cores // lanes


def search_precision(named: Literal["auto", "fp32", "bf16"], device: torch.device) -> Precision:
    """The type in which a search multiplies what may be rounded (robust0.models.fast.searching).

    ``auto`` is bf16 where the device multiplies it natively.
    """
    if named != "auto":
        return named
    return "bf16" if _multiplies_bf16(device) else "fp32"


def _multiplies_bf16(device: torch.device) -> bool:
    import torch

    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    able: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(bool(able.get(name)) for name in ("avx512_bf16", "amx_bf16"))
