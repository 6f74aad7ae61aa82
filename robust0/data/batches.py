"""Batches for training and evaluation, the same for images in memory and for image files."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from robust0.data.augment import Augmentation, ViewDraw
from robust0.data.decoding import decode, evaluation_view, to_unit
from robust0.data.imageset import FileSet, ImageSet, TensorSet
from robust0.errors import DataError
from robust0.rng import Stream

_MOST_WORKERS = 8


@dataclass(frozen=True, slots=True)
class Batch:
    """Images (B, C, H, W) float32 in [0, 1] with their labels and ids, all on one device."""

    images: Tensor
    labels: Tensor
    ids: Tensor


def train_batches(
    data: ImageSet,
    order: Tensor,
    batch_size: int,
    *,
    epoch: int,
    stream: Stream,
    augment: Augmentation,
    workers: int | None = None,
) -> Iterator[Batch]:
    """Augmented batches of the positions in ``order``, the last one possibly short.

    A view depends on the stream, the image's id and the epoch only: not on the batch, the order or
    the number of ``workers``, which are processes that decode files: by default one per core, at
    most eight; sets in memory need none and ignore it.
    """
    if isinstance(data, FileSet):
        yield from _file_batches(data, order, batch_size, workers, _View(stream, epoch, augment))
        return
    for index in _chunks(order.to(data.device), batch_size):
        ids = data.ids[index]
        pixels = data.pixels(index) if isinstance(data, TensorSet) else data.images(index)
        draw = ViewDraw(ids, epoch, stream)
        pixels = augment.views(pixels, draw, pixels.shape[2:], _as_is)
        images = to_unit(pixels) if isinstance(data, TensorSet) else pixels
        yield Batch(images, data.labels[index], ids)


def eval_batches(
    data: ImageSet, batch_size: int, order: Tensor | None = None, *, workers: int | None = None
) -> Iterator[Batch]:
    """Batches without augmentation, of the whole set or of the positions in ``order``."""
    order = torch.arange(len(data)) if order is None else order
    if isinstance(data, FileSet):
        yield from _file_batches(data, order, batch_size, workers, None)
        return
    for index in _chunks(order.to(data.device), batch_size):
        yield Batch(data.images(index), data.labels[index], data.ids[index])


@dataclass(frozen=True, slots=True)
class _View:
    """What a worker needs to know to draw the training view of an image."""

    stream: Stream
    epoch: int
    augment: Augmentation


class _Decoded(Dataset[Tensor | DataError]):
    """Item i is batch i, decoded whole by one worker: (B, 3, S, S) uint8 on the CPU."""

    def __init__(self, data: FileSet, batches: list[Tensor], view: _View | None) -> None:
        self._paths = [[data.path(at) for at in batch.tolist()] for batch in batches]
        self._ids = [data.ids[batch.to(data.device)].cpu() for batch in batches]
        self._size, self._view = data.image_size, view

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> Tensor | DataError:
        try:
            images = [decode(path) for path in self._paths[number]]
        except DataError as problem:
            # Returned, not raised: the loader would bury its two lines in a worker's traceback.
            return problem
        if self._view is None:
            return self._whole(images)
        return self._training_views(images, self._ids[number], self._view)

    def _whole(self, images: Sequence[Tensor] | Tensor) -> Tensor:
        return torch.stack([evaluation_view(image, self._size) for image in images])

    def _training_views(self, images: list[Tensor], ids: Tensor, view: _View) -> Tensor:
        draw = ViewDraw(ids, view.epoch, view.stream)
        return view.augment.views(images, draw, (self._size, self._size), self._whole)


def _file_batches(
    data: FileSet, order: Tensor, batch_size: int, workers: int | None, view: _View | None
) -> Iterator[Batch]:
    batches = _chunks(order.cpu(), batch_size)
    most = min(os.cpu_count() or 1, _MOST_WORKERS) if workers is None else workers
    loader = DataLoader(
        _Decoded(data, batches, view),
        batch_size=None,
        num_workers=min(most, len(batches)),
        pin_memory=data.device.type == "cuda",
        # Its own generator: the loader would otherwise take its workers' seed from the global one.
        generator=torch.Generator(),
    )
    for index, pixels in zip(batches, loader, strict=True):
        if isinstance(pixels, DataError):
            raise pixels
        on_device = pixels.to(data.device, non_blocking=True)
        at = index.to(data.device)
        yield Batch(to_unit(on_device), data.labels[at], data.ids[at])


def _chunks(order: Tensor, size: int) -> list[Tensor]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def _as_is(images: Sequence[Tensor] | Tensor) -> Tensor:
    return images if isinstance(images, Tensor) else torch.stack(list(images))
