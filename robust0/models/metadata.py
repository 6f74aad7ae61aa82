# ruff: noqa: ANN401 - fields of a pydantic model are passed by name
"""What a checkpoint says about itself: JSON in the safetensors header, untrusted when read.

Two plain strings, ``arch`` and ``arch_args``, let timm alone rebuild the network; everything else
is one JSON object under ``robust0``, with a schema number.
"""

import datetime
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    model_validator,
)
from torch import nn

from robust0 import __version__, upgrades
from robust0.errors import ModelError, Robust0Error
from robust0.models.build import (
    MAX_CLASSES,
    MAX_SIDE,
    Argument,
    NetworkSpec,
    check_arguments,
    check_name,
)
from robust0.models.classifiers import ClassifierNotes
from robust0.models.header import no_constant, one_line, unique
from robust0.threats import Threat

SCHEMA = 2
KEY = "robust0"
_MAX_JSON = 20_000_000  # characters of our own JSON
_MAX_ARGUMENTS = 10_000  # characters of arch_args
_LIBRARIES = ("torch", "torchvision", "timm", "safetensors", "numpy")


def _printable(text: str) -> str:
    """Refuse control characters: these strings are shown in terminals."""
    if not text.isprintable():
        raise ValueError("must be printable text on one line")
    return text


Text = Annotated[str, Field(max_length=1000), AfterValidator(_printable)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{8,128}$")]
Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]
Channels = Annotated[int, Field(ge=1, le=64)]
Statistics = Annotated[tuple[FiniteFloat, ...], Field(min_length=1, max_length=64)]


def _known_unit(unit: str) -> str:
    try:
        return Threat.of(1, unit).unit
    except Robust0Error as problem:
        raise ValueError(problem.message) from problem


class Budget(BaseModel):
    """How much of an image may change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    unit: Annotated[str, Field(max_length=40), AfterValidator(_known_unit)]
    amount: Annotated[int, Field(ge=1, le=2**31)]


class Metadata(BaseModel):
    """All that is known about a checkpoint besides its weights."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # The network: an architecture of timm's registry, or a factory (told, never imported, on load).
    arch: Annotated[str, Field(max_length=201)] | None = None
    arch_args: dict[str, Argument] = Field(default_factory=dict)
    factory: Text | None = None
    adaptations: Annotated[tuple[Text, ...], Field(max_length=32)] = ()
    pretrained: Text | None = None  # where its first weights came from
    # What is around the network; None: it classifies whole images by itself.
    classifier: ClassifierNotes | None = None
    # The data it takes.
    classes: Annotated[int, Field(ge=2, le=MAX_CLASSES)]
    class_names: Annotated[tuple[Text, ...], Field(max_length=MAX_CLASSES)] = ()
    input_size: tuple[Channels, Side, Side]
    mean: Statistics
    std: Statistics
    dataset: Text | None = None
    variant: Text | None = None
    training_ids: Hash | None = None  # fingerprint of the ids of the images trained on
    # How it was made.
    recipe: Hash | None = None
    method: Text | None = None
    train_budget: Budget | None = None
    eval_budget: Budget | None = None
    epochs: Annotated[int, Field(ge=0, le=10**9)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    metrics: Annotated[dict[Text, FiniteFloat], Field(max_length=256)] = Field(default_factory=dict)
    versions: Annotated[dict[Text, Text], Field(max_length=32)] = Field(default_factory=dict)
    created: datetime.date | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.arch is None) == (self.factory is None):
            raise ValueError("exactly one of arch and factory must be given")
        if self.class_names and len(self.class_names) != self.classes:
            raise ValueError(f"{len(self.class_names)} class names for {self.classes} classes")
        if not len(self.mean) == len(self.std) == self.input_size[0]:
            raise ValueError("mean and std must have one value per channel")
        if min(self.std) <= 0:
            raise ValueError("std must be positive")
        if self.classifier is not None:
            try:
                self.classifier.wrap(nn.Identity(), self.input_size, self.classes)
            except Robust0Error as error:
                raise ValueError(str(error)) from error
        return self

    @classmethod
    def of(cls, spec: NetworkSpec, **facts: Any) -> "Metadata":
        """Metadata of a network with this description, and further fields of this class.

        With a ``classifier``, ``facts`` also say which images that takes: size, mean and std.
        """
        described = {
            "arch": spec.arch,
            "arch_args": dict(spec.arch_args),
            "classes": spec.classes,
            "input_size": spec.input_size,
            "mean": spec.mean,
            "std": spec.std,
        }
        return cls.made(**described | facts)

    @classmethod
    def made(cls, **facts: Any) -> "Metadata":
        """Metadata from these fields; library versions and today's date are filled in."""
        facts.setdefault("versions", versions())
        facts.setdefault("created", datetime.datetime.now(datetime.UTC).date())
        try:
            return cls(**facts)
        except ValidationError as error:
            raise ModelError(
                f"this network cannot be described in a checkpoint: {_first(error)}",
                "correct what the message names",
            ) from error

    def spec(self) -> NetworkSpec:
        """The description of the network, the inner one where there is a classifier around it."""
        if self.arch is None:
            raise ModelError(
                f"this checkpoint's network came from the factory {self.factory}",
                f"pass --factory {self.factory} to load it",
            )
        args, size, mean, std = self.arch_args, self.input_size, self.mean, self.std
        if self.classifier is not None:
            size = self.classifier.inner_size(size)
            mean, std = (*mean, 0.0), (*std, 1.0)  # the marks of real pixels stay as they are
        return NetworkSpec(self.arch, self.classes, size, mean, std, args)

    def strings(self) -> dict[str, str]:
        """The entries of a safetensors ``__metadata__``."""
        facts = self.model_dump(mode="json", exclude={"arch", "arch_args"}, exclude_none=True)
        strings = {KEY: json.dumps({"schema": SCHEMA, **facts}, sort_keys=True)}
        if self.arch is not None:
            arguments = json.dumps(self.spec().create_args(), sort_keys=True)
            strings |= {"arch": self.arch, "arch_args": arguments}
        return strings


def versions() -> dict[str, str]:
    """The versions of robust0, of Python and of the libraries that shape a network."""
    libraries = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"robust0": __version__, "python": platform.python_version(), **libraries}


def read(strings: Mapping[str, str], path: Path) -> Metadata | None:
    """The metadata in a header's strings; None if the file is not from robust0."""
    if KEY not in strings:
        return None
    facts = _json_object(strings[KEY], _MAX_JSON, KEY, path)
    schema = facts.pop("schema", None)
    if type(schema) is not int or schema < 1:
        raise ModelError(f"{path} has metadata without a schema number", "make it anew")
    if schema > SCHEMA:
        raise ModelError(
            f"{path} has metadata of schema {schema}, this robust0 reads up to {SCHEMA}",
            "upgrade: pip install --upgrade robust0",
        )
    if schema == 1:
        facts = upgrades.budgets(facts)
    if "arch" in strings:
        arguments = _json_object(strings.get("arch_args", ""), _MAX_ARGUMENTS, "arch_args", path)
        facts |= {"arch": strings["arch"], "arch_args": arguments}
    return _validated(facts, path)


def _validated(facts: dict[str, Any], path: Path) -> Metadata:
    """Every rule of the model, then those that need timm's registry."""
    arguments = facts.get("arch_args", {})
    declared = {key: arguments.pop(key, None) for key in ("num_classes", "in_chans")}
    try:
        # Through JSON again, in strict mode: lists become tuples, nothing else is converted.
        metadata = Metadata.model_validate_json(json.dumps(facts), strict=True)
    except ValidationError as error:
        raise ModelError(
            f"{path} has invalid metadata: {_first(error)}",
            "do not trust this file; make or download it again",
        ) from error
    if metadata.arch is not None:
        check_name(metadata.arch)
        check_arguments(metadata.arch_args)
        create = metadata.spec().create_args()
        if declared != {key: create.get(key) for key in declared}:
            raise ModelError(
                f"{path} has metadata whose arch_args contradict its classes or input_size",
                "do not trust this file; make or download it again",
            )
    return metadata


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the whole"
    return f"{one_line(place)}: {one_line(first['msg'])}"


def _json_object(text: str, limit: int, key: str, path: Path) -> dict[str, Any]:
    if len(text) > limit:
        raise ModelError(
            f"{path} has {len(text)} characters of {key}, expected at most {limit}",
            "do not trust this file",
        )
    try:
        document = json.loads(text, object_pairs_hook=unique, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"{path} has metadata ({key}) that is not JSON: {one_line(error)}",
            "make or download the file again",
        ) from error
    if not isinstance(document, dict):
        raise ModelError(
            f"{path} has metadata ({key}) that is not a JSON object",
            "make or download the file again",
        )
    return document
