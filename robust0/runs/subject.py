"""The model an audit is about: a checkpoint, a user's factory, or published weights."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from robust0.data.imageset import ImageSet
from robust0.errors import ModelError
from robust0.events import Transfer
from robust0.models import metadata as notes
from robust0.models.adapt import plan
from robust0.models.checkpoint import load
from robust0.models.factory import from_factory
from robust0.models.header import read_header
from robust0.models.metadata import Metadata
from robust0.models.pretrained import realize
from robust0.models.sources import Source, find
from robust0.zoo.fetch import locate

_PUBLISHED = ("hf-hub:", "local-dir:")


@dataclass(frozen=True, slots=True)
class Named:
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


@dataclass(frozen=True, slots=True)
class Subjected:
    """A network ready to be audited, in eval mode on the CPU."""

    network: nn.Module
    sha256: str | None  # of the weights' file
    mean: tuple[float, ...] = ()  # empty: the network's own affair
    std: tuple[float, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def identity(self) -> str:
        """The weights' file, or else the tensors themselves."""
        return self.sha256 or tensors_digest(self.network)


def find_model(
    model: str | None, factory: str | None, progress: Callable[[Transfer], None] | None = None
) -> Named:
    """What the command line's MODEL and --factory mean; a model of the zoo is pulled if need be."""
    if factory is not None:
        path = None if model is None else locate(model, progress=progress)
        return Named(model or factory, path, factory, metadata=_peek(path))
    if model is None:
        raise ModelError(
            "no model was named",
            "give a checkpoint, an id from robust0 zoo list, hf-hub:OWNER/NAME or --factory",
        )
    if model.startswith(_PUBLISHED):
        source = find(model)
        path = source.weights()
        metadata = _peek(path)
        return Named(model, path, source=None if metadata else source, metadata=metadata)
    path = locate(model, progress=progress)
    metadata = _peek(path)
    if metadata is None:
        raise ModelError(
            f"{path} holds weights but no robust0 metadata, so its network is unknown",
            "give --factory package.module:callable too, or local-dir:FOLDER with its config.json",
        )
    metadata.spec()  # refuses a checkpoint of a factory that was not given
    return Named(model, path, metadata=metadata)


def load_model(named: Named, data: ImageSet, *, seed: int) -> Subjected:
    """Read the tensors, and refuse a network that was made for other images."""
    if named.factory is not None:
        made = from_factory(named.factory, named.path, seed=seed)
        fresh = () if named.path else (f"{named.factory} was given no weights: they are its own",)
        return Subjected(made.network.eval(), made.sha256, notes=fresh)
    if named.source is not None:
        return _published(named, named.source, data, seed)
    if named.path is None:
        raise ModelError(f"{named.shown} has no weights", "give a .safetensors checkpoint")
    loaded = load(named.path)
    known = loaded.metadata
    if known.input_size != data.image_shape:
        raise ModelError(
            f"{named.shown} takes images {known.input_size}, {data.name} has {data.image_shape}",
            "audit it on images of the size it was trained for",
        )
    return Subjected(loaded.network, loaded.sha256, known.mean, known.std, known.adaptations)


def _published(named: Named, source: Source, data: ImageSet, seed: int) -> Subjected:
    classes = source.config.get("num_classes")
    if classes != len(data.class_names):
        raise ModelError(
            f"{named.shown} has {classes or 'an unknown number of'} classes, {data.name} has "
            f"{len(data.class_names)}",
            "audit it on the data it was trained for",
        )
    chosen = plan(
        named.shown, image_shape=data.image_shape, classes=classes, pretrained=True, adapt=False
    )
    network = realize(chosen, seed=seed).eval()
    digest = None if named.path is None else hashlib.sha256(named.path.read_bytes()).hexdigest()
    return Subjected(network, digest, chosen.spec.mean, chosen.spec.std)


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
