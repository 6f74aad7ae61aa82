"""What callers hold, as an audit or a training wants it: images, labels, and a module's logits."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import index
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from robust0.auditing.given import GivenSet, given_images
from robust0.errors import DataError, ModelError, RecipeError

_IMAGES = ("images", "image", "pixel_values", "img", "x")
_LABELS = ("labels", "label", "targets", "target", "y", "fine_label")


def device_of(module: object) -> torch.device:
    """Where a module is; refuses anything else."""
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"expected a torch.nn.Module, got a {type(module).__name__}",
            "wrap a function in a module whose forward calls it",
        )
    weight = next(module.parameters(), None)
    return weight.device if weight is not None else torch.device("cpu")


def given_budgets(eps: int | Sequence[int]) -> tuple[int, ...]:
    """Budgets, largest first; refuses anything but whole numbers."""
    try:
        given = [index(value) for value in (eps if isinstance(eps, Iterable) else [eps])]
    except TypeError:
        given = []
    if not given or min(given) < 1 or isinstance(eps, bool):
        raise RecipeError(
            f"eps must be whole numbers of at least 1, got {eps!r}", "for example eps=20"
        )
    return tuple(sorted(set(given), reverse=True))


def open_given(
    images: Any,  # noqa: ANN401 - a tensor, an array, nested lists, a loader or a dataset
    labels: Any,  # noqa: ANN401
    device: torch.device,
    limit: int | None = None,
) -> tuple[GivenSet, list[str]]:
    """A set of the first ``limit`` images, and what was assumed about them."""
    if labels is None:
        images, labels = _pairs(images, limit)
    if limit is not None:
        images, labels = images[:limit], labels[:limit]
    pixels, notes = _floats(images)
    return given_images(pixels, labels, device), notes


def _floats(given: Any) -> tuple[Any, list[str]]:  # noqa: ANN401 - anything array-like
    """Images as (N, C, H, W) floats where they were uint8 or had no channels."""
    notes = []
    values = given if isinstance(given, Tensor) else torch.from_numpy(np.asarray(given))
    if values.ndim == 3:
        values = values[:, None]
        notes.append(f"images {tuple(given.shape)} were taken as {len(values)} grey images")
    if values.dtype == torch.uint8:
        values = values.to(torch.float32) / 255
        notes.append("uint8 images were divided by 255")
    return values, notes


def _pairs(given: Any, limit: int | None) -> tuple[Any, Any]:  # noqa: ANN401
    """Images and labels from a loader, a dataset, or a pair."""
    if isinstance(given, tuple) and len(given) == 2:
        return given
    if isinstance(given, Tensor | np.ndarray) or not (
        isinstance(given, Iterable) or hasattr(given, "__getitem__")
    ):
        raise DataError(
            f"there are no labels for the {type(given).__name__}",
            "give labels, or a DataLoader or a dataset of (image, label)",
        )
    if isinstance(given, DataLoader):
        return _batches(given, limit)
    if limit is None and hasattr(given, "__len__"):
        limit = len(given)
    items = given if isinstance(given, Iterable) else (given[at] for at in range(limit or 0))
    pairs = [_parts(item) for item in islice(items, limit)]
    if not pairs:
        raise DataError("the dataset is empty", "give at least one image")
    return torch.stack([_image(image) for image, _ in pairs]), [int(label) for _, label in pairs]


def _batches(loader: DataLoader[Any], limit: int | None) -> tuple[Tensor, Tensor]:
    images, labels, count = list[Tensor](), list[Tensor](), 0
    for batch in loader:
        some, classes = _parts(batch)
        images.append(torch.as_tensor(some))
        labels.append(torch.as_tensor(classes))
        count += len(classes)
        if limit is not None and count >= limit:
            break
    if not images:
        raise DataError("the loader is empty", "give at least one image")
    return torch.cat(images), torch.cat(labels)


def _parts(item: Any) -> tuple[Any, Any]:  # noqa: ANN401 - an item of somebody's dataset
    """The image and the label of an item: a pair, or a mapping with known keys."""
    if isinstance(item, Mapping):
        image = next((item[key] for key in _IMAGES if key in item), None)
        label = next((item[key] for key in _LABELS if key in item), None)
        if image is not None and label is not None:
            return image, label
        raise DataError(
            f"the dataset's items have the keys {', '.join(map(str, item))}",
            f"name them {_IMAGES[0]} and {_LABELS[0]}",
        )
    if isinstance(item, Sequence) and len(item) == 2:
        return item[0], item[1]
    raise DataError(
        f"the dataset's items are {type(item).__name__}s", "make them (image, label) pairs"
    )


def _image(given: Any) -> Tensor:  # noqa: ANN401 - a tensor, an array or a PIL image
    """One image as (C, H, W), or (H, W) where it has no channels."""
    if isinstance(given, Tensor):
        return given
    pixels = torch.from_numpy(np.array(given))
    last = pixels.ndim == 3 and pixels.shape[2] in (1, 3, 4) and pixels.shape[0] > 4
    return pixels.permute(2, 0, 1) if last else pixels


class Logits(nn.Module):
    """A module that answers with more than logits, reduced to them."""

    def __init__(self, module: nn.Module, key: str | int) -> None:
        super().__init__()
        self.module, self.key = module, key

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, classes)."""
        answer = self.module(images)
        if isinstance(self.key, str) and not isinstance(answer, Mapping):
            answer = getattr(answer, self.key)
        else:
            answer = answer[self.key]
        logits: Tensor = answer
        return logits


def answering(module: nn.Module, data: GivenSet) -> tuple[nn.Module, list[str]]:
    """The module, or what takes the logits out of its answers; and a note if so."""
    was = module.training
    try:
        with torch.no_grad():
            answer = module.eval()(data.images(torch.arange(min(2, len(data)))))
    except Exception:  # noqa: BLE001 - the audit's own check says precisely what is wrong
        return module, []
    finally:
        module.train(was)
    if isinstance(answer, Tensor):
        return module, []
    key = _logits_key(answer, min(2, len(data)))
    if key is None:
        kind = type(answer).__name__
        raise ModelError(
            f"the model returns a {kind} in which no tensor is plainly the logits",
            "return logits (N, classes), or wrap the model in a module that does",
        )
    shown = f".{key}" if isinstance(key, str) and not isinstance(answer, dict) else f"[{key!r}]"
    note = f"the model returns a {type(answer).__name__}: its {shown} was taken as the logits"
    return Logits(module, key).train(was), [note]


def _logits_key(answer: object, rows: int) -> str | int | None:
    """Where the logits are: what is called so, else the only (N, classes) tensor."""
    named = answer.get("logits") if isinstance(answer, Mapping) else getattr(answer, "logits", None)
    if isinstance(named, Tensor):
        return "logits"
    if isinstance(answer, Mapping):
        items: list[tuple[Any, object]] = list(answer.items())
    elif isinstance(answer, tuple | list):
        items = list(enumerate(answer))
    else:
        items = []
    fitting = [key for key, value in items if _looks_like_logits(value, rows)]
    return fitting[0] if len(fitting) == 1 else None


def _looks_like_logits(value: object, rows: int) -> bool:
    return isinstance(value, Tensor) and value.ndim == 2 and len(value) == rows
