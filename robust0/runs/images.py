"""The images of a run: a recipe's test or training set, or exactly those of an earlier audit."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch

from robust0.data.catalogue import Variant
from robust0.data.datasets import in_cache, open_dataset
from robust0.data.imageset import ImageSet
from robust0.errors import DataError
from robust0.events import Transfer
from robust0.recipes.schema import DatasetSpec

Progress = Callable[[Transfer], None]
EMBEDDED = "sample"  # the first images of CIFAR-10's test set


def open_images(
    spec: DatasetSpec, split: Literal["train", "test"], data_dir: Path | None, progress: Progress
) -> ImageSet:
    """The images that a recipe names."""
    return open_dataset(
        spec.name, split, data_dir=data_dir, variant=spec.variant, image_size=spec.image_size,
        class_list=spec.classes, progress=progress,
    )  # fmt: skip


def open_audited(
    name: str,
    ids: Sequence[int],
    fingerprint: str,
    data_dir: Path | None,
    progress: Progress,
    *,
    variant: Variant = "official",
) -> ImageSet:
    """Exactly the images of an earlier audit, by their ids and content."""
    candidates: list[tuple[str, Variant]] = [(name, variant)]
    if name == "cifar10" and data_dir is None and not in_cache(name):
        candidates.insert(0, (EMBEDDED, "official"))  # enough for its first 1,000 images
    for candidate, kind in candidates:
        data = open_dataset(candidate, "test", data_dir=data_dir, progress=progress, variant=kind)
        same = pick_ids(data, [image for image in ids if image in set(data.ids.tolist())])
        if same.content_fingerprint == fingerprint:
            return same
    raise DataError(
        f"{name} does not hold the images of the earlier audit",
        "give --data-dir with the same data, or audit the model anew",
    )


def pick_ids(data: ImageSet, ids: Sequence[int]) -> ImageSet:
    """The images with these ids, in this order."""
    place = {image: row for row, image in enumerate(data.ids.tolist())}
    return data.subset(torch.tensor([place[image] for image in ids], dtype=torch.int64))
