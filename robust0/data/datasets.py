"""The one door to every dataset; no torch on import."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robust0.data.catalogue import DATASETS, Split, Variant
from robust0.data.places import data_cache, is_decoded
from robust0.errors import DataError
from robust0.events import Transfer
from robust0.files import at_home

if TYPE_CHECKING:
    from robust0.data.imageset import ImageSet


def open_dataset(
    name: str,
    split: Split,
    *,
    data_dir: Path | None = None,
    variant: Variant = "official",
    image_size: int | None = None,
    class_list: Sequence[str] | None = None,
    fetch_missing: bool = True,
    progress: Callable[[Transfer], None] | None = None,
) -> "ImageSet":
    """One split of a dataset, verified, on the CPU.

    Args:
        name: A key of DATASETS, ``folder:PATH`` or ``npz:PATH``.
        split: Which one; sources that are not divided deliver everything and call it "all".
        data_dir: Where a named dataset is, instead of the cache; it must be there.
        variant: ``paper`` is GTSRB's random split of its training archive, which leaks.
        image_size: Another size than the dataset's own; only for image files.
        class_list: Class folders in label order; only for imagenet100 and ``folder:``.
        fetch_missing: Download a dataset that the cache lacks, rather than refuse.
        progress: Told about such a download.
    """
    kind, path = parse_name(name)
    spec = DATASETS.get(kind)
    if variant not in (spec.variants if spec else ("official",)):
        raise DataError(
            f"{name} has no variant {variant!r}", "only gtsrb has one beside official: paper"
        )
    filed = kind in ("folder", "imagenet100")
    if class_list is not None and not filed:
        raise DataError(
            f"{name} takes no class list", "class lists are for imagenet100 and folder:PATH"
        )
    if spec is not None and not filed and image_size not in (None, spec.image_size):
        raise DataError(
            f"{name} is {spec.image_size}x{spec.image_size}, not {image_size}",
            f"leave the image size out, or use folder:PATH to scale {kind} from image files",
        )
    from robust0.data import sources

    if path is not None:
        return sources.open_path(name, path, split, image_size=image_size, class_list=class_list)
    if kind == "imagenet100":
        return sources.open_imagenet100(split, data_dir, image_size, class_list)
    if kind == "sample":
        return sources.open_sample(split)
    return sources.open_fetched(
        kind, split, variant, data_dir, fetch_missing=fetch_missing, progress=progress
    )


def pull_data(name: str, data_dir: Path | None = None) -> Iterator[Transfer]:
    """Bring a dataset into the cache, or into ``data_dir``, unless it is there; verify it."""
    kind, path = parse_name(name)
    spec = DATASETS.get(kind)
    if path is not None or spec is None or not (spec.fetched or kind == "sample"):
        raise DataError(
            f"{name} cannot be fetched",
            "prepare a folder with train/CLASS and val/CLASS and give it as --data-dir",
        )
    from robust0.data import sources

    yield from sources.pull(kind, data_dir)


def in_cache(name: str) -> bool:
    """Whether a named dataset can be opened without the network or a --data-dir."""
    return name == "sample" or is_decoded(data_cache() / name)


def parse_name(name: str) -> tuple[str, Path | None]:
    """A dataset's kind and, for ``folder:`` and ``npz:``, its path."""
    kind, colon, rest = name.partition(":")
    if kind in ("folder", "npz") and rest:
        return kind, at_home(rest)
    if name in DATASETS:
        return name, None
    known = [*DATASETS, "folder:PATH", "npz:PATH"]
    near = difflib.get_close_matches((kind + colon).lower(), known, n=1, cutoff=0.5)
    raise DataError(
        f"unknown dataset {name!r}; known: {', '.join(known)}",
        f"did you mean {near[0]}?" if near else "see robust0 data list",
    )
