"""The process that unpickles: python -P convert_worker.py SOURCE TARGET, in its own sandbox.

It imports nothing of robust0. The weights-only unpickler runs no code by design, but has had holes;
so it runs here, with bounded memory and time, and hands over only a safetensors file. The answer is
one line of JSON on standard output: {"kind": ..., "detail": ...}.
"""

import argparse
import json
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

_SPARE = 2 * 2**30  # bytes of address space beyond a few copies of the file
_COPIES = 6
_CPU_SECONDS = 600
_WRAPPERS = ("state_dict", "model", "model_state_dict", "net")
_PREFIXES = ("module.", "_orig_mod.")


class ConversionError(Exception):
    """Why no tensors came out, as (kind, detail)."""


def serve(source: Path, target: Path) -> dict[str, str]:
    """Write the tensors of a pickle as safetensors and say how it went."""
    _limit(source.stat().st_size)
    try:
        tensors = _tensors(_unpickled(source))
    except ConversionError as refusal:
        kind, detail = refusal.args
        return {"kind": kind, "detail": detail}
    except (RuntimeError, MemoryError) as error:  # torch's own words for too little memory
        return {"kind": "tensors", "detail": str(error).splitlines()[0]}
    save_file(tensors, target)
    return {"kind": "ok", "detail": f"{len(tensors)} tensors"}


def _unpickled(source: Path) -> object:
    try:
        # timm's training script stores its command line, a Namespace: plain data.
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(  # noqa: TID251 - the one place where pickles are read, on request
                source, map_location="cpu", weights_only=True
            )
    except pickle.UnpicklingError as error:
        raise ConversionError("refused", str(error)) from error
    except (RuntimeError, EOFError, ValueError, KeyError, OSError, MemoryError) as error:
        raise ConversionError("unreadable", f"{type(error).__name__}: {error}") from error


def _tensors(content: object) -> dict[str, Tensor]:
    """The tensors of a state dict, or of one inside a training checkpoint, as float32."""
    if isinstance(content, Mapping):
        inner = (content.get(key) for key in _WRAPPERS)
        content = next((found for found in inner if isinstance(found, Mapping)), content)
    if not isinstance(content, Mapping) or not content:
        raise ConversionError("shape", f"it holds a {type(content).__name__}")
    tensors: dict[str, Tensor] = {}
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise ConversionError("shape", f"{key!r} is a {type(value).__name__}")
        if value.layout != torch.strided or value.is_quantized:
            raise ConversionError("shape", f"{key!r} is sparse or quantised")
        name = _stripped(key)
        if name in tensors:
            raise ConversionError("shape", f"{name!r} occurs twice")
        dense = value.detach().float() if value.is_floating_point() else value.detach()
        tensors[name] = dense.contiguous().clone()
    return tensors


def _stripped(key: str) -> str:
    """The name without what data-parallel training and torch.compile put in front."""
    while key.startswith(_PREFIXES):
        key = key.split(".", 1)[1]
    return key


def _limit(size: int) -> None:
    """Bound memory and time, where the system can."""
    try:
        import resource  # POSIX only
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    pages = Path("/proc/self/statm")
    if pages.exists():
        used = int(pages.read_text().split()[0]) * resource.getpagesize()
        bound = used + _COPIES * size + _SPARE
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(serve(Path(sys.argv[1]), Path(sys.argv[2]))) + "\n")
