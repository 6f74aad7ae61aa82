"""The header of a safetensors file, read by hand: what is wrong with a file, said precisely.

A file is 8 bytes of little-endian header length, a JSON header, then the tensors' bytes without
gaps. Everything in it is untrusted. The library that reads the tensors checks much of this again,
but says less, and accepts duplicate keys. No torch here.
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from robust0.errors import ModelError

MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors format
_MAX_DIMENSIONS = 32
_WORD = 8
_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}
_CONVERT = "convert it first: robust0 zoo convert FILE --arch NAME -o NEW.safetensors"
_DOWNLOAD = "download the file again; compare its size and sha256 with the source"
# What people hold instead of a safetensors file: (first bytes, what it is, what to do).
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive, probably a PyTorch pickle", _CONVERT),
    *((bytes([0x80, version]), "a Python pickle", _CONVERT) for version in (2, 3, 4, 5)),
    (b"version https://git-lfs", "a git-LFS pointer, not the weights", "run: git lfs pull"),
    (b"\x89HDF", "an HDF5 file", "save the weights as safetensors"),
    (b"\x93NUMPY", "a NumPy array", "save the weights as safetensors"),
)
_MARKUP = (b"<!doctype", b"<html", b"<?xml", b"<head")


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor as the header describes it; offsets count from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """Tensors by name, and the free strings of ``__metadata__``."""

    tensors: dict[str, Entry]
    strings: dict[str, str]


def read_bytes(path: Path) -> bytes:
    """The whole file, so that what is hashed, checked and loaded is one and the same."""
    return _read(path, lambda file: file.read())


def read_header(path: Path) -> Header:
    """The header alone, without reading the tensors."""
    data = _read(path, lambda file: _head(file.read(_WORD), file))
    return parse_header(data, path, size=path.stat().st_size)


def parse_header(data: bytes, path: Path, *, size: int | None = None) -> Header:
    """The header of these bytes, checked against them; ``path`` only appears in messages.

    Args:
        data: the file, or its beginning up to the end of the header.
        path: for messages.
        size: of the file, if ``data`` is only its beginning.
    """
    text = _header_text(data, path)
    try:
        document = json.loads(text, object_pairs_hook=unique, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"{path} has a header that is not valid JSON: {one_line(error)}", _DOWNLOAD
        ) from error
    if not isinstance(document, dict):
        raise ModelError(f"{path} has a header that is not a JSON object", _DOWNLOAD)
    strings = document.pop("__metadata__", {})
    if not isinstance(strings, dict) or not all(isinstance(v, str) for v in strings.values()):
        raise ModelError(f"{path} has a __metadata__ that is not a table of strings", _DOWNLOAD)
    tensors = {name: _entry(name, value, path) for name, value in document.items()}
    _check_layout(tensors, (len(data) if size is None else size) - _WORD - len(text), path)
    return Header(tensors, strings)


def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object, refusing a key that occurs twice: readers would disagree on its value."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key occurs twice")
    return table


def no_constant(name: str) -> object:
    """Refuse the NaN and Infinity that Python's JSON reader would take."""
    raise ValueError(f"{name} is not JSON")


def one_line(value: object, limit: int = 160) -> str:
    """Untrusted text for a message: printable, on one line, not endless."""
    text = "".join(c if c.isprintable() else " " for c in " ".join(str(value).split()))
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _read(path: Path, part: Callable[[BinaryIO], bytes]) -> bytes:
    try:
        if path.is_dir():
            raise ModelError(
                f"{path} is a directory, expected a .safetensors file",
                "name the file inside it; a folder with a config.json is local-dir:PATH",
            )
        if path.exists() and not path.is_file():
            raise ModelError(f"{path} is not a regular file", "name a .safetensors file")
        with path.open("rb") as file:
            data = part(file)
    except FileNotFoundError:
        raise ModelError(f"no checkpoint at {path}", "check the path and its spelling") from None
    except OSError as error:
        raise ModelError(
            f"cannot read {path}: {error.strerror or error}", "check the file's permissions"
        ) from error
    if not data:
        raise ModelError(f"{path} is empty", _DOWNLOAD)
    return data


def _head(word: bytes, file: BinaryIO) -> bytes:
    length = int.from_bytes(word, "little")
    return word + file.read(min(length, MAX_HEADER))


def _header_text(data: bytes, path: Path) -> bytes:
    rest = len(data) - _WORD
    if rest < 0:
        raise ModelError(f"{path} is cut off in its first 8 bytes: it has {len(data)}", _DOWNLOAD)
    length = int.from_bytes(data[:_WORD], "little")
    # A pickle may begin like a length word; no true length is over the limit, and a header
    # begins with a brace.
    starts = data[_WORD : _WORD + 1] == b"{"
    if rest and (not starts or length > MAX_HEADER):
        _refuse_foreign(data, path)
    if length > MAX_HEADER:
        raise ModelError(
            f"{path} claims a header of {length} bytes, the limit is {MAX_HEADER}", _DOWNLOAD
        )
    if length > rest:
        raise ModelError(
            f"{path} is cut off in its header: expected {length} bytes, got {rest}", _DOWNLOAD
        )
    if not starts:
        raise ModelError(f"{path} is not a safetensors file", _CONVERT)
    return data[_WORD : _WORD + length]


def _refuse_foreign(data: bytes, path: Path) -> None:
    for magic, kind, hint in _FOREIGN:
        if data.startswith(magic):
            raise ModelError(f"{path} is {kind}, expected safetensors", hint)
    if data[:200].lstrip().lower().startswith(_MARKUP):
        raise ModelError(
            f"{path} is a web page, expected safetensors",
            "the download link led to a page (login or error); fetch the raw file",
        )


def _entry(name: str, value: object, path: Path) -> Entry:
    label = f"tensor {one_line(name)!r} of {path}"
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise ModelError(f"{label} is not described by dtype, shape and data_offsets", _DOWNLOAD)
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BYTES:
        raise ModelError(
            f"{label} has the unknown dtype {one_line(dtype)!r}", "store float32 or int64 tensors"
        )
    if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
        raise ModelError(f"{label} has a shape or offsets that are not natural numbers", _DOWNLOAD)
    begin, end = offsets
    if end - begin != math.prod(shape) * _BYTES[dtype]:
        raise ModelError(
            f"{label} is {dtype} {shape}, which does not fit its {end - begin} bytes", _DOWNLOAD
        )
    return Entry(dtype, tuple(shape), begin, end)


def _naturals(values: object) -> bool:
    if not isinstance(values, list) or len(values) > _MAX_DIMENSIONS:
        return False
    return all(type(value) is int and 0 <= value < 2**63 for value in values)


def _check_layout(tensors: dict[str, Entry], size: int, path: Path) -> None:
    """Tensors must fill the buffer exactly, in some order, without overlaps and holes."""
    reached = 0
    for name, entry in _by_offset(tensors.items()):
        if entry.begin != reached:
            fault = "overlaps the one before it" if entry.begin < reached else "follows a hole"
            raise ModelError(
                f"tensor {one_line(name)!r} of {path} {fault}: it begins at byte {entry.begin}, "
                f"expected {reached}",
                _DOWNLOAD,
            )
        reached = entry.end
    if reached > size:
        raise ModelError(
            f"{path} is cut off in its tensors: expected {reached} bytes, got {size}", _DOWNLOAD
        )
    if reached < size:
        raise ModelError(f"{path} has {size - reached} bytes after its last tensor", _DOWNLOAD)


def _by_offset(items: Iterable[tuple[str, Entry]]) -> list[tuple[str, Entry]]:
    return sorted(items, key=lambda item: (item[1].begin, item[1].end))
