"""Where published weights come from: timm's own, hf-hub:OWNER/NAME or local-dir:PATH.

Only safetensors are read. A folder or repository is untrusted: its config.json names the network
and its arguments, which pass the same checks as a checkpoint's metadata.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from timm.models import get_pretrained_cfg

from robust0.errors import ModelError
from robust0.files import at_home, read_regular
from robust0.models.build import Argument, check_arguments, check_name
from robust0.models.header import no_constant, one_line, unique

_WEIGHTS = "model.safetensors"
_CONFIG = "config.json"
_MAX_CONFIG = 10_000_000  # bytes; label names of ImageNet-21k take less than one million
# What timm needs to fit published weights to another head or another channel count.
_KEPT = ("num_classes", "classifier", "first_conv", "label_offset")


@dataclass(frozen=True, slots=True)
class Source:
    """Published weights of a network, found but not yet fetched."""

    name: str  # as the user gave it
    arch: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    config: Mapping[str, Any] = field(default_factory=dict)  # overrides of timm's pretrained_cfg
    repository: str = ""  # OWNER/NAME[@REVISION] on the hub
    folder: Path | None = None

    def statistics(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std the weights were trained with; grey images get their average."""
        if channels == len(self.mean):
            return self.mean, self.std
        if channels == 1:
            return (sum(self.mean) / len(self.mean),), (sum(self.std) / len(self.std),)
        raise ModelError(
            f"{self.name} was trained on {len(self.mean)}-channel images, the data has {channels}",
            "give mean and std for every channel",
        )

    def weights(self) -> Path:
        """The safetensors file, downloaded if need be."""
        if self.folder is None:
            return _download(self.repository, _WEIGHTS, self.name)
        files = sorted(self.folder.glob("*.safetensors"))
        preferred = [file for file in files if file.name == _WEIGHTS]
        if preferred or len(files) == 1:
            return (preferred or files)[0]
        raise ModelError(
            f"{self.folder} has {len(files)} safetensors files, expected one ({_WEIGHTS})",
            "pickles are not read here: convert them with robust0 zoo convert",
        )


def find_source(name: str) -> Source:
    """The published weights of this name; reads a config.json, fetches no weights."""
    kind, colon, rest = name.partition(":")
    if not colon:
        return _from_timm(name)
    if kind == "hf-hub" and rest:
        return _from_config(name, _download(rest, _CONFIG, name), repository=rest)
    if kind == "local-dir" and rest:
        folder = at_home(rest)
        return _from_config(name, folder / _CONFIG, folder=folder)
    raise ModelError(
        f"{one_line(name)!r} is not a source of weights",
        "use a timm name, hf-hub:OWNER/NAME or local-dir:PATH",
    )


def _from_timm(name: str) -> Source:
    check_name(name)
    published = get_pretrained_cfg(name)
    if published is None or not published.has_weights:
        raise ModelError(
            f"there are no pretrained weights for {name}",
            "leave out --pretrained, or list networks with timm.list_pretrained()",
        )
    if not published.hf_hub_id:
        raise ModelError(
            f"timm's weights for {name} exist as a pickle only",
            f"download {published.url} and use robust0 zoo convert, or choose another network",
        )
    mean, std = tuple(published.mean), tuple(published.std)
    return Source(name, name, {}, mean, std, repository=published.hf_hub_id)


def _from_config(
    name: str, path: Path, *, repository: str = "", folder: Path | None = None
) -> Source:
    document = _read_json(path)
    config = document.get("pretrained_cfg", document)  # older files have one level only
    arch, arguments = document.get("architecture"), document.get("model_args") or {}
    if not isinstance(arch, str) or not isinstance(arguments, dict) or not isinstance(config, dict):
        raise ModelError(
            f"{path} does not describe a timm network", 'expected "architecture" and "model_args"'
        )
    check_name(arch)
    check_arguments(arguments)
    kept = {key: config[key] for key in _KEPT if config.get(key) is not None}
    if "num_classes" in document:
        kept["num_classes"] = document["num_classes"]
    mean, std = (_numbers(config, key, path) for key in ("mean", "std"))
    return Source(
        name, arch, arguments, mean, std, config=kept, repository=repository, folder=folder
    )


def _numbers(config: Mapping[str, Any], key: str, path: Path) -> tuple[float, ...]:
    fallback = Source.__dataclass_fields__[key].default
    values = config.get(key, fallback)
    fine = isinstance(values, list | tuple) and 0 < len(values) <= 64
    if not fine or not all(isinstance(v, int | float) and abs(v) < 1e6 for v in values):
        raise ModelError(f"{path} has a {key} that is not a list of numbers", "correct the file")
    return tuple(float(value) for value in values)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        text = read_regular(path, _MAX_CONFIG)
        document = json.loads(text, object_pairs_hook=unique, parse_constant=no_constant)
    except OSError as error:
        raise ModelError(
            f"cannot read {path}: {error.strerror or error}",
            "local-dir: needs a folder with config.json and model.safetensors",
        ) from error
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"{path} is not valid JSON: {one_line(error)}", "correct the file"
        ) from error
    if not isinstance(document, dict):
        raise ModelError(f"{path} is not a JSON object", "correct the file")
    return document


def _download(repository: str, file: str, name: str) -> Path:
    """A file from the Hugging Face hub, through its cache."""
    owner, _, revision = repository.partition("@")
    try:
        with _quiet():
            return Path(hf_hub_download(owner, file, revision=revision or None))
    except (GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise ModelError(
            f"the hub has no public {name}", "check the name; private ones need: hf auth login"
        ) from error
    except LocalEntryNotFoundError as error:
        raise ModelError(
            f"cannot fetch {file} of {name}: the hub cannot be reached, the cache does not have it",
            "check the connection, or copy the files and use local-dir:PATH",
        ) from error
    except EntryNotFoundError as error:
        raise ModelError(
            f"{name} has no {file}", "pickles are not read here: use robust0 zoo convert"
        ) from error
    except HFValidationError as error:
        raise ModelError(f"{name} is not OWNER/NAME on the hub", "check the spelling") from error
    except OSError as error:
        raise ModelError(
            f"cannot fetch {file} of {name}: {one_line(error)}", "check the connection, try again"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the hub's log of retries out of the terminal; the outcome is told by our error."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
