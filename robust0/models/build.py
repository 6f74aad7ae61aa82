"""From the description of a network to the network, through timm."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import timm
import torch
from timm.models import get_pretrained_cfg
from torch import Tensor, nn

from robust0 import rng
from robust0.errors import ModelError
from robust0.models.header import one_line
from robust0.models.networks import preact, small_resnet, viewnet
from robust0.models.normalize import Normalized

Scalar = None | bool | int | float | str
Argument = Scalar | list[Scalar]

OWN = (*preact.default_cfgs, *small_resnet.default_cfgs, *viewnet.default_cfgs)
MAX_ARGUMENTS = 32
MAX_CLASSES = 100_000
MAX_SIDE = 1024  # pixels; bounds the memory of a trial run
# A hostile checkpoint may ask for any depth: these bound what building it can cost.
_MAX_LIST, _MAX_NUMBER, _MAX_STRING = 16, 4096, 64
_MAX_LAYERS = 512  # of one argument in all; timm's deepest networks have about 200
_COUNTS = re.compile(r".*(depth|layers|blocks|stages|repeats|branches|experts).*")
_NAME = re.compile(r"[a-z0-9_]{1,100}(\.[a-z0-9_]{1,100})?")
# Set by robust0 (class count, channels), or able to read files, fetch weights or change the output.
_RESERVED = re.compile(
    r"num_classes|in_chans|pretrained.*|checkpoint_path|cache_dir|scriptable|exportable|no_jit"
    r"|features_only|feature_cfg|feature_cls|out_indices|model_cfg|kwargs_filter|device|dtype"
)


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """Everything that fixes a network but its weights; images are (C, H, W) = ``input_size``."""

    arch: str  # a name registered with timm, possibly with a tag
    classes: int
    input_size: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    arch_args: Mapping[str, Argument] = field(default_factory=dict)

    def create_args(self) -> dict[str, Any]:
        """The keyword arguments with which timm.create_model makes the bare network."""
        channels = self.input_size[0]
        more = {} if channels == 3 else {"in_chans": channels}
        return {**self.arch_args, "num_classes": self.classes, **more}


def build(spec: NetworkSpec, *, seed: int = 0) -> Normalized:
    """The network with fresh weights drawn from ``seed``, on the CPU, in train mode.

    It has been run on two images of the stated size: its logits have the stated shape.
    """
    with rng.seeded("weights", seed):
        network = create(spec)
    model = Normalized(network, spec.mean, spec.std)
    check_output(model, spec)
    return model


def skeleton(spec: NetworkSpec) -> nn.Module:
    """The bare network without memory for its weights: names, shapes and dtypes only."""
    with torch.device("meta"):
        return create(spec)


def create(spec: NetworkSpec, **weights: Any) -> nn.Module:  # noqa: ANN401 - timm's own arguments
    """The bare network from timm; ``weights`` are timm's arguments about pretrained weights."""
    check_name(spec.arch)
    check_arguments(spec.arch_args)
    try:
        network = timm.create_model(spec.arch, **weights, **spec.create_args())
    except ModelError:  # ours
        raise
    except Exception as error:  # any of timm's thousand networks may object in its own way
        shown = ", ".join(f"{key}={value!r}" for key, value in spec.create_args().items())
        raise ModelError(
            f"timm cannot build {spec.arch}({one_line(shown)}): {one_line(error)}",
            "check the model's arguments against timm's documentation",
        ) from error
    if not isinstance(network, nn.Module):
        raise ModelError(
            f"timm built a {type(network).__name__} for {spec.arch}, expected a network",
            "choose another architecture",
        )
    return network


def check_name(name: str) -> None:
    """Refuse what is not the name of a registered network, proposing close ones."""
    if _NAME.fullmatch(name) is None:
        raise ModelError(
            f"{one_line(name)!r} is not the name of a timm network",
            "use a name from timm.list_models(), for example resnet18",
        )
    arch, _, tag = name.partition(".")
    if not timm.is_model(arch):
        close = difflib.get_close_matches(arch, timm.list_models(), n=3, cutoff=0.5)
        names = f"close names: {', '.join(close)}" if close else f"our own are {', '.join(OWN)}"
        raise ModelError(f"timm knows no network {arch!r}", names)
    if tag:
        try:
            get_pretrained_cfg(name)
        except RuntimeError as error:
            tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{arch}.*")]
            raise ModelError(
                f"{arch} has no weights tagged {tag!r}", f"known tags: {', '.join(tags) or 'none'}"
            ) from error


def check_arguments(arguments: Mapping[str, object]) -> None:
    """Refuse arguments that are not small JSON values, or that are not the user's to set."""
    if len(arguments) > MAX_ARGUMENTS:
        raise ModelError(
            f"{len(arguments)} model arguments, expected at most {MAX_ARGUMENTS}", "use fewer"
        )
    for key, value in arguments.items():
        if re.fullmatch(r"[a-z][a-z0-9_]{0,63}", key) is None or _RESERVED.fullmatch(key):
            raise ModelError(
                f"the model argument {one_line(key)!r} cannot be set",
                "classes and channels follow the data; weights come from --pretrained",
            )
        values = value if isinstance(value, list) else [value]
        if len(values) > _MAX_LIST or not all(_small(item) for item in values):
            raise ModelError(
                f"the model argument {key} has the value {one_line(value)!r}",
                "expected a number up to 4096, a short string, a boolean, or a list of up to 16",
            )
        layers = sum(abs(item) for item in values if isinstance(item, int | float))
        if _COUNTS.fullmatch(key) and layers > _MAX_LAYERS:
            raise ModelError(
                f"the model argument {key} asks for {layers:g} layers, more than {_MAX_LAYERS}",
                "building so deep a network would take minutes and gigabytes",
            )


def check_data(input_size: tuple[int, int, int], classes: int) -> None:
    """Refuse images and class counts that a checkpoint could not record."""
    if not 2 <= classes <= MAX_CLASSES:
        raise ModelError(
            f"{classes} classes, expected 2 to {MAX_CLASSES}", "a classifier needs labelled classes"
        )
    if min(input_size) < 1 or max(input_size[1:]) > MAX_SIDE:
        raise ModelError(
            f"images of (C, H, W) = {input_size}, expected sides of 1 to {MAX_SIDE} pixels",
            "resize the images",
        )


def check_output(model: nn.Module, spec: NetworkSpec) -> None:
    """Run two grey images through the model and check the shape of its logits."""
    size = "x".join(str(side) for side in spec.input_size[1:])
    training = model.training
    images = torch.full((2, *spec.input_size), 0.5)
    try:
        with torch.no_grad():
            logits: object = model.eval()(images)
    except Exception as error:  # the network's own complaint, whatever its kind
        raise ModelError(
            f"{spec.arch} cannot take {size} images: {one_line(error)}",
            "choose a network for this size, set its img_size or patch_size, or resize the data",
        ) from error
    finally:
        model.train(training)
    if not isinstance(logits, Tensor) or tuple(logits.shape) != (2, spec.classes):
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ModelError(
            f"{spec.arch} answers two images with {got}, expected (2, {spec.classes}) logits",
            "choose a network that classifies",
        )


def _small(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_STRING
    if isinstance(value, bool) or value is None:
        return True
    return isinstance(value, int | float) and abs(value) <= _MAX_NUMBER  # refuses NaN too
