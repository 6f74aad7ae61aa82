"""Checkpoints: safetensors with bare timm keys, written whole or not at all, loaded strictly.

Plain timm rebuilds one without robust0 (our own networks need ``import robust0.models``):

    import json, timm
    from safetensors import safe_open
    from safetensors.torch import load_file

    with safe_open(path, framework="pt") as file:
        notes = file.metadata()
    network = timm.create_model(notes["arch"], **json.loads(notes["arch_args"]))
    network.load_state_dict(load_file(path), strict=True)
"""

import contextlib
import errno
import glob
import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from robust0.errors import ModelError
from robust0.files import atomic
from robust0.models import metadata as notes
from robust0.models.bounds import bounded, check_tables
from robust0.models.build import build, skeleton
from robust0.models.header import Header, one_line, parse_header, read_bytes, read_header
from robust0.models.metadata import Budget, Metadata
from robust0.models.normalize import bare

__all__ = [
    "Budget",
    "LoadedCheckpoint",
    "Metadata",
    "Weights",
    "check_finite",
    "load_checkpoint",
    "load_weights",
    "read_metadata",
    "save_checkpoint",
]

_STALE = 600.0  # seconds without a write after which a temporary file has no writer
_CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
}


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """A classifier from a checkpoint, in eval mode, and what the checkpoint says about it.

    It is the network with its normalisation, or a :class:`~robust0.models.voting.Certifiable`.
    """

    network: nn.Module
    metadata: Metadata
    sha256: str  # of the whole file


@dataclass(frozen=True, slots=True)
class Weights:
    """A file whose tensors have been loaded; ``metadata`` is None unless robust0 wrote it."""

    metadata: Metadata | None
    sha256: str


def save_checkpoint(path: str | Path, network: nn.Module, metadata: Metadata) -> str:
    """Write a checkpoint atomically and return its sha256; what could not be loaded is refused."""
    path = Path(path)
    tensors = {
        name: value.detach().to("cpu", copy=True).contiguous()
        for name, value in _state(bare(network)).items()
    }
    check_finite(tensors, "the network", "the training diverged: lower the learning rate")
    if metadata.arch is not None:
        _check_tensors(
            skeleton(metadata.spec()), _described(tensors), f"a network other than {metadata.arch}"
        )
    data = _canonical(save_tensors(tensors, metadata=metadata.strings()))
    digest = hashlib.sha256(data).hexdigest()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path)
        with atomic(path) as temporary:
            temporary.write_bytes(data)
            if hashlib.sha256(temporary.read_bytes()).hexdigest() != digest:
                raise OSError(errno.EIO, "the bytes read back differ from those written")
    except OSError as error:
        raise _unwritable(path, error) from error
    return digest


def load_checkpoint(path: str | Path, *, device: torch.device | str = "cpu") -> LoadedCheckpoint:
    """Rebuild the network of a robust0 checkpoint and load its tensors strictly."""
    path = Path(path)
    data = read_bytes(path)
    header = parse_header(data, path)
    metadata = _own(notes.read(header.strings, path), path)
    spec = metadata.spec()
    # Names and shapes first, without memory: hostile arguments cannot make us allocate.
    listed = _listed(header)
    values = sum(math.prod(shape) for _, shape in listed.values())
    with bounded(len(listed), values, str(path)):
        outline = skeleton(spec)
    _check_tensors(outline, listed, str(path))
    check_tables(outline, values, str(path))
    model: nn.Module = build(spec)
    _fill(bare(model), data, path)
    if metadata.classifier is not None:
        model = metadata.classifier.wrap(model, metadata.input_size, metadata.classes)
    return LoadedCheckpoint(model.to(device).eval(), metadata, hashlib.sha256(data).hexdigest())


def load_weights(network: nn.Module, path: str | Path) -> Weights:
    """Load the tensors of any safetensors file into a network, strictly, in place."""
    path = Path(path)
    data = read_bytes(path)
    header = parse_header(data, path)
    inner = bare(network)
    _check_tensors(inner, _listed(header), str(path))
    _fill(inner, data, path)
    return Weights(notes.read(header.strings, path), hashlib.sha256(data).hexdigest())


def read_metadata(path: str | Path) -> Metadata:
    """What a checkpoint says about itself; its header is checked, its tensors are not."""
    path = Path(path)
    header = read_header(path)
    return _own(notes.read(header.strings, path), path)


def check_finite(tensors: Mapping[str, Tensor], where: str, hint: str) -> None:
    """Refuse NaN and Inf, naming the first tensor that has them."""
    for name, value in tensors.items():
        if not bool(torch.isfinite(value).all()):
            raise ModelError(f"{where} has NaN or Inf in {one_line(name)!r}", hint)


def _own(metadata: Metadata | None, path: Path) -> Metadata:
    if metadata is None:
        raise ModelError(
            f"{path} holds weights but no robust0 metadata, so its network is unknown",
            "name the network: --arch NAME, or --factory package.module:callable",
        )
    return metadata


def _state(network: nn.Module) -> dict[str, Tensor]:
    state = network.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise ModelError(
                f"the network keeps {name!r} as a {type(value).__name__}, expected a tensor",
                "keep extra state out of state_dict()",
            )
    return state


def _described(tensors: Mapping[str, Tensor]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        name: (_CODES.get(value.dtype, str(value.dtype)), tuple(value.shape))
        for name, value in tensors.items()
    }


def _listed(header: Header) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (entry.dtype, entry.shape) for name, entry in header.tensors.items()}


def _check_tensors(
    network: nn.Module, found: Mapping[str, tuple[str, tuple[int, ...]]], where: str
) -> None:
    """Refuse names, dtypes or shapes other than the network's, naming the first."""
    expected = _described(_state(network))
    hint = "the weights belong to another network: check the architecture and its arguments"
    missing = [name for name in expected if name not in found]
    if missing:
        raise ModelError(f"{where} lacks {len(missing)} tensors, first {missing[0]!r}", hint)
    extra = sorted(name for name in found if name not in expected)
    if extra:
        raise ModelError(
            f"{where} has {len(extra)} tensors too many, first {one_line(extra[0])!r}", hint
        )
    for name, (dtype, shape) in expected.items():
        got_dtype, got_shape = found[name]
        if got_shape != shape:
            raise ModelError(f"{where} has {name!r} in shape {got_shape}, expected {shape}", hint)
        if got_dtype != dtype:
            raise ModelError(
                f"{where} has {name!r} as {got_dtype}, expected {dtype}",
                "store the weights in the network's own precision",
            )


def _fill(network: nn.Module, data: bytes, path: Path) -> None:
    try:
        tensors = load_tensors(data)
    except SafetensorError as error:
        raise ModelError(f"cannot read {path}: {one_line(error)}", "download it again") from error
    check_finite(tensors, str(path), "do not use these weights: the training had diverged")
    network.load_state_dict(tensors, strict=True)


def _canonical(data: bytes) -> bytes:
    """The same file with its metadata in sorted order: equal contents give equal bytes."""
    length = int.from_bytes(data[:8], "little")
    document = json.loads(data[8 : 8 + length])
    document["__metadata__"] = dict(sorted(document["__metadata__"].items()))
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors stay aligned
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def _remove_stale(path: Path) -> None:
    """Delete temporary files of this checkpoint that a killed process left behind."""
    now = time.time()
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if now - leftover.stat().st_mtime > _STALE:
                leftover.unlink()


def _unwritable(path: Path, error: OSError) -> ModelError:
    hints = {
        errno.ENOSPC: "free some space; an earlier file of this name is untouched",
        errno.EDQUOT: "free some of your quota; an earlier file of this name is untouched",
        errno.EACCES: "choose a folder you may write to",
        errno.EROFS: "choose a folder you may write to",
        errno.EISDIR: "name a file, not a directory",
    }
    hint = hints.get(error.errno or 0, "check the path; an earlier file of this name is untouched")
    return ModelError(f"cannot write {path}: {error.strerror or error}", hint)
