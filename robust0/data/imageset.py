"""Labelled images with stable ids: on the compute device as one tensor, or as files on disk."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from robust0.data.decoding import decode_all, evaluation_view, to_unit
from robust0.errors import DataError


@dataclass(frozen=True, slots=True)
class DataOrigin:
    """What a set is called and where it was read from.

    ``split`` is train or test, or all for a source that is not divided. ``shuffled`` says that the
    stored order is known to be random; ``notes`` tell what was done to the images.
    """

    name: str
    split: str
    class_names: tuple[str, ...]
    source: str
    shuffled: bool = False
    notes: tuple[str, ...] = ()


class ImageSet(ABC):
    """N labelled images. ``ids`` are stable names of images: a subset keeps those of its parent.

    Images leave as (B, C, H, W) float32 in [0, 1]; labels and ids are (N,) int64; everything is on
    the set's device. Indices are positions in this set, as int64 tensors on any device.
    """

    def __init__(self, origin: DataOrigin, labels: Tensor, ids: Tensor) -> None:
        self.origin, self.labels, self.ids = origin, labels, ids

    @property
    def name(self) -> str:
        """The dataset's name as the user gives it."""
        return self.origin.name

    @property
    def split(self) -> str:
        """Train, test, or all."""
        return self.origin.split

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name per class, by label."""
        return self.origin.class_names

    @property
    def source(self) -> str:
        """The path the images were read from."""
        return self.origin.source

    @property
    def device(self) -> torch.device:
        """Where images are delivered."""
        return self.labels.device

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def fingerprint(self) -> str:
        """A hex sha256 that two sets share only if they hold the same images in the same order."""
        digest = hashlib.sha256(f"{type(self).__name__} 1 {self.image_shape}\n".encode())
        for block in (_bytes(self.ids), _bytes(self.labels), *self._content()):
            digest.update(block)
        return digest.hexdigest()

    @cached_property
    def content_fingerprint(self) -> str:
        """A fingerprint that always covers the images themselves, if files must be read for it."""
        return self.fingerprint

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""

    @abstractmethod
    def images(self, index: Tensor) -> Tensor:
        """The images at these positions, as evaluation sees them."""

    @abstractmethod
    def subset(self, index: Tensor) -> Self:
        """The images at these positions as a set of their own."""

    @abstractmethod
    def to(self, device: torch.device) -> Self:
        """The same set on another device."""

    @abstractmethod
    def checksums(self) -> dict[str, str]:
        """The sha256 of the decoded arrays by name, where there are such arrays."""

    @abstractmethod
    def _content(self) -> Iterable[bytes]:
        """What the fingerprint covers beside ids and labels."""


class TensorSet(ImageSet):
    """Images as one uint8 tensor (N, C, H, W) on the device.

    The fingerprint covers ids, labels and every pixel.
    """

    def __init__(
        self, origin: DataOrigin, pixels: Tensor, labels: Tensor, ids: Tensor | None = None
    ) -> None:
        if pixels.dtype != torch.uint8 or pixels.ndim != 4 or len(pixels) != len(labels):
            raise DataError(
                f"{origin.name}: expected uint8 pixels (N, C, H, W) for {len(labels)} labels, "
                f"got {pixels.dtype} {tuple(pixels.shape)}",
                "give one image per label",
            )
        require_labels(origin, labels)
        ids = torch.arange(len(labels), device=labels.device) if ids is None else ids
        super().__init__(origin, labels, ids)
        self._pixels = pixels

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """As stored."""
        channels, height, width = self._pixels.shape[1:]
        return channels, height, width

    def pixels(self, index: Tensor) -> Tensor:
        """The images at these positions as stored: (B, C, H, W) uint8."""
        return self._pixels[index.to(self.device)]

    def images(self, index: Tensor) -> Tensor:
        """The stored pixels over 255."""
        return to_unit(self.pixels(index))

    def subset(self, index: Tensor) -> Self:
        """A copy of the chosen rows."""
        index = index.to(self.device)
        return type(self)(self.origin, self._pixels[index], self.labels[index], self.ids[index])

    def to(self, device: torch.device) -> Self:
        """All pixels, labels and ids moved."""
        labels, ids = self.labels.to(device), self.ids.to(device)
        return type(self)(self.origin, self._pixels.to(device), labels, ids)

    def checksums(self) -> dict[str, str]:
        """Digests of images as (N, H, W, C) and of labels as uint8: those that sources publish."""
        images = self._pixels.cpu().permute(0, 2, 3, 1).contiguous().numpy()
        labels = self.labels.cpu().numpy()
        if len(self.class_names) <= 256:
            labels = labels.astype(np.uint8)
        return {
            "images": hashlib.sha256(images.data).hexdigest(),
            "labels": hashlib.sha256(labels.data).hexdigest(),
        }

    def _content(self) -> Iterable[bytes]:
        yield _bytes(self._pixels)


class FileSet(ImageSet):
    """Images as files, decoded when asked for.

    The fingerprint covers ids, labels, relative paths, file sizes and the image size, but not the
    files' bytes: hashing an ImageNet at every start would take longer than many a training epoch.
    ``content_fingerprint`` does read them; an audit asks for it, of the images it attacks.
    """

    def __init__(
        self,
        origin: DataOrigin,
        files: tuple[str, ...],
        labels: Tensor,
        ids: Tensor,
        *,
        sizes: Tensor,
        image_size: int,
    ) -> None:
        require_labels(origin, labels)
        super().__init__(origin, labels, ids)
        self.files, self.image_size, self._sizes = files, image_size, sizes

    @cached_property
    def content_fingerprint(self) -> str:
        """The fingerprint, with the bytes of every file."""
        digest = hashlib.sha256(self.fingerprint.encode())
        for position in range(len(self)):
            try:
                digest.update(hashlib.sha256(self.path(position).read_bytes()).digest())
            except OSError as problem:
                raise DataError(
                    f"cannot read the image {self.path(position)}: {problem.strerror}",
                    "repair or remove the file",
                ) from problem
        return digest.hexdigest()

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """After resizing and cropping."""
        return 3, self.image_size, self.image_size

    def path(self, position: int) -> Path:
        """Where the image at a position lies."""
        return Path(self.source) / self.files[position]

    def images(self, index: Tensor) -> Tensor:
        """Decoded, scaled and cropped at the centre."""
        paths = [self.path(position) for position in index.tolist()]
        return to_unit(decode_all(paths, self._evaluation_view).to(self.device))

    def _evaluation_view(self, image: Tensor) -> Tensor:
        return evaluation_view(image, self.image_size)

    def subset(self, index: Tensor) -> Self:
        """The chosen files."""
        at = index.cpu()
        positions = torch.arange(len(self))[at]
        return type(self)(
            self.origin,
            tuple(self.files[position] for position in positions.tolist()),
            self.labels[index.to(self.device)],
            self.ids[index.to(self.device)],
            sizes=self._sizes[at],
            image_size=self.image_size,
        )

    def to(self, device: torch.device) -> Self:
        """Labels and ids moved; images will be delivered there."""
        return type(self)(
            self.origin,
            self.files,
            self.labels.to(device),
            self.ids.to(device),
            sizes=self._sizes,
            image_size=self.image_size,
        )

    def checksums(self) -> dict[str, str]:
        """Nothing: the files are never all decoded at once."""
        return {}

    def _content(self) -> Iterable[bytes]:
        yield "\n".join(self.files).encode(errors="surrogateescape")
        yield _bytes(self._sizes)


def side(data: ImageSet) -> str:
    """Height and width, such as 32x32: what a budget in pixels must be seen against."""
    _, height, width = data.image_shape
    return f"{height}x{width}"


def require_labels(origin: DataOrigin, labels: Tensor) -> None:
    """Refuse labels that name no class."""
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(origin.class_names):
        raise DataError(
            f"{origin.name}: labels must lie in 0..{len(origin.class_names) - 1}, "
            f"got {int(labels.min())}..{int(labels.max())}",
            "renumber the labels from zero",
        )


def _bytes(tensor: Tensor) -> bytes:
    return tensor.cpu().contiguous().numpy().tobytes()
