"""The model and the images that a run is about, opened in one place for every command.

A model is a checkpoint, an id of the zoo, a user's factory, published weights, or a module.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from robust0.data.imageset import ImageSet
from robust0.errors import ModelError
from robust0.events import Transfer
from robust0.models import metadata as notes
from robust0.models.adapt import adaptation_plan
from robust0.models.checkpoint import load_checkpoint
from robust0.models.factory import from_factory
from robust0.models.header import read_header
from robust0.models.metadata import Metadata
from robust0.models.pretrained import realize
from robust0.models.sources import Source, find_source
from robust0.zoo.fetch import locate
from robust0.zoo.hub import HubFileError
from robust0.zoo.roots import HUB

_PUBLISHED = (HUB, "local-dir:")


@dataclass(frozen=True, slots=True)
class ModelReference:
    """A model that has been found; its tensors have not been read."""

    shown: str  # what the user said
    path: Path | None = None  # of its weights
    factory: str | None = None
    source: Source | None = None  # published weights that robust0 did not write
    metadata: Metadata | None = None

    @property
    def arch(self) -> str:
        """The name of its architecture."""
        if self.factory is not None:
            return self.factory
        if self.source is not None:
            return self.source.arch
        return self.shown if self.metadata is None else self.metadata.spec().arch


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSubject:
    """A network in eval mode and the images it is asked about, on one device."""

    network: nn.Module
    data: ImageSet
    device: torch.device
    model: str  # what the user said
    arch: str
    identity: str  # of the weights: their file's, or else the tensors' themselves
    sha256: str | None = None  # of the weights' file
    method: str | None = None
    mean: tuple[float, ...] = ()  # empty: the network's own affair
    std: tuple[float, ...] = ()
    class_names: tuple[str, ...] = ()  # of the model, where it knows them
    notes: tuple[str, ...] = ()


def open_subject(
    reference: ModelReference, data: ImageSet, device: torch.device, *, seed: int
) -> RunSubject:
    """Read the tensors, refuse a network that was made for other images, move both."""
    loaded = _load(reference, data, seed)
    network = loaded.network.to(device)
    if device.type != "mps":
        network = network.to(memory_format=torch.channels_last)
    known = reference.metadata
    return RunSubject(
        network=network,
        data=data.to(device),
        device=device,
        model=reference.shown,
        arch=reference.arch,
        identity=loaded.sha256 or tensors_digest(network),
        sha256=loaded.sha256,
        method=known.method if known is not None else None,
        mean=loaded.mean,
        std=loaded.std,
        class_names=known.class_names if known is not None else (),
        notes=loaded.notes,
    )


def given_subject(module: nn.Module, data: ImageSet, device: torch.device) -> RunSubject:
    """A module that the caller made, with images that the caller has."""
    name = type(module).__name__
    return RunSubject(
        network=module, data=data, device=device, model=name, arch=name,
        identity=tensors_digest(module),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Weights:
    """A network on the CPU, and what its file says."""

    network: nn.Module
    sha256: str | None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()


def find_model(
    model: str | None, factory: str | None, progress: Callable[[Transfer], None] | None = None
) -> ModelReference:
    """What the command line's MODEL and --factory mean; a model of the zoo is pulled if need be."""
    if factory is not None:
        path = None if model is None else locate(model, progress=progress)
        return ModelReference(model or factory, path, factory, metadata=_peek(path))
    if model is None:
        raise ModelError(
            "no model was named",
            "give a checkpoint, an id from robust0 zoo list, hf-hub:OWNER/NAME or --factory",
        )
    if model.startswith(_PUBLISHED):
        return _find_published(model, progress)
    path = locate(model, progress=progress)
    metadata = _peek(path)
    if metadata is None:
        raise ModelError(
            f"{path} holds weights but no robust0 metadata, so its network is unknown",
            "give --factory package.module:callable too, or local-dir:FOLDER with its config.json",
        )
    metadata.spec()  # refuses a checkpoint of a factory that was not given
    return ModelReference(model, path, metadata=metadata)


def _find_published(model: str, progress: Callable[[Transfer], None] | None) -> ModelReference:
    if model.startswith(HUB):
        with suppress(HubFileError):  # it has no card: robust0 did not publish it
            path = locate(model, progress=progress)
            return ModelReference(model, path, metadata=_peek(path))
    source = find_source(model)
    path = source.weights()
    metadata = _peek(path)
    return ModelReference(model, path, source=None if metadata else source, metadata=metadata)


def _load(named: ModelReference, data: ImageSet, seed: int) -> _Weights:
    if named.factory is not None:
        made = from_factory(named.factory, named.path, seed=seed)
        fresh = () if named.path else (f"{named.factory} was given no weights: they are its own",)
        return _Weights(made.network.eval(), made.sha256, notes=fresh)
    if named.source is not None:
        return _published(named, named.source, data, seed)
    if named.path is None:
        raise ModelError(f"{named.shown} has no weights", "give a .safetensors checkpoint")
    loaded = load_checkpoint(named.path)
    known = loaded.metadata
    if known.input_size != data.image_shape:
        raise ModelError(
            f"{named.shown} takes images {known.input_size}, {data.name} has {data.image_shape}",
            "audit it on images of the size it was trained for",
        )
    return _Weights(loaded.network, loaded.sha256, known.mean, known.std, known.adaptations)


def _published(named: ModelReference, source: Source, data: ImageSet, seed: int) -> _Weights:
    classes = source.config.get("num_classes")
    if classes != len(data.class_names):
        raise ModelError(
            f"{named.shown} has {classes or 'an unknown number of'} classes, {data.name} has "
            f"{len(data.class_names)}",
            "audit it on the data it was trained for",
        )
    chosen = adaptation_plan(
        named.shown, image_shape=data.image_shape, classes=classes, pretrained=True, adapt=False
    )
    network = realize(chosen, seed=seed).eval()
    digest = None if named.path is None else hashlib.sha256(named.path.read_bytes()).hexdigest()
    return _Weights(network, digest, chosen.spec.mean, chosen.spec.std)


def _peek(path: Path | None) -> Metadata | None:
    return None if path is None else notes.read(read_header(path).strings, path)


def tensors_digest(network: nn.Module) -> str:
    """sha256 of the names and bytes of a network's tensors."""
    digest = hashlib.sha256()
    for name, value in network.state_dict().items():
        if isinstance(value, torch.Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
