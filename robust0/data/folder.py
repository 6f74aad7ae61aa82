"""Images in class folders: root/<class>/<image>, or root/train/<class> and root/test/<class>."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image

from robust0.data.catalogue import Split
from robust0.data.decoding import decode_all
from robust0.data.imageset import DataOrigin, FileSet, ImageSet, TensorSet
from robust0.errors import DataError

_SPLIT_FOLDERS: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("test", "val")}
_EXTENSIONS = {".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".webp", ".tif", ".tiff", ".gif"}
_CLUTTER = {"thumbs.db", "desktop.ini"}
_SMALL_SIDE = 64
_FILE_SIDE = 224


@dataclass(frozen=True, slots=True)
class _Listing:
    """What a root holds: paths relative to it in sorted order, with labels and sizes in bytes."""

    root: Path
    class_names: tuple[str, ...]
    files: tuple[str, ...]
    labels: tuple[int, ...]
    sizes: tuple[int, ...]

    def paths(self) -> list[Path]:
        return [self.root / name for name in self.files]


def open_folder(
    name: str,
    root: Path,
    split: Split,
    *,
    image_size: int | None = None,
    class_list: Sequence[str] | None = None,
) -> ImageSet:
    """The images under ``root``; ids are positions in the sorted order of relative paths.

    A root with a train, test or val folder that itself holds folders is divided; ``val`` stands in
    for a missing ``test``. Any other root is one undivided set whose split is called "all",
    whichever split was asked for. Small images of one size (64 pixels at most) become a tensor;
    others stay files, seen at 224 pixels. ``image_size`` asks for another size. ``class_list``
    names the class folders to use, in label order; by default all, sorted.
    """
    if not root.is_dir():
        raise DataError(f"{name}: there is no folder {root}", "give the path of an existing folder")
    try:
        place, found = _split_root(name, root, split)
        listing = _list(name, place, class_list)
    except OSError as problem:
        raise DataError(
            f"{name}: cannot read {problem.filename or root}: {problem.strerror or problem}",
            "check the path and its permissions",
        ) from problem
    origin = DataOrigin(name, found, listing.class_names, str(place.absolute()))
    side = _common_side(listing)
    labels = torch.tensor(listing.labels)
    if side is not None and image_size in (None, side[0]):
        return TensorSet(origin, decode_all(listing.paths(), lambda image: image), labels)
    return FileSet(
        origin,
        listing.files,
        labels,
        torch.arange(len(labels)),
        sizes=torch.tensor(listing.sizes),
        image_size=image_size or _FILE_SIDE,
    )


def _split_root(name: str, root: Path, split: Split) -> tuple[Path, str]:
    """The folder of class folders for a split, and the split that this really is."""
    names = [folder for folders in _SPLIT_FOLDERS.values() for folder in folders]
    # A class may well be called "train"; then it holds images, not folders.
    divided = [
        folder
        for folder in names
        if (root / folder).is_dir() and any(entry.is_dir() for entry in (root / folder).iterdir())
    ]
    if not divided:
        return root, "all"
    for folder in _SPLIT_FOLDERS[split]:
        if folder in divided:
            return root / folder, split
    raise DataError(
        f"{name}: {root} has no {' or '.join(_SPLIT_FOLDERS[split])} folder, only "
        f"{', '.join(divided)}",
        f"add the folder, or give the path of {divided[0]} itself",
    )


def _list(name: str, root: Path, class_list: Sequence[str] | None) -> _Listing:
    present = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    present = [folder for folder in present if not folder.startswith(".")]
    wanted = list(present) if class_list is None else list(class_list)
    missing = [folder for folder in wanted if folder not in present]
    if missing or not wanted or len(set(wanted)) != len(wanted):
        lacks = f"class folders ({len(missing)} missing: {', '.join(missing[:5])})"
        problem = f"no {lacks if missing else 'class folders'} in {root}"
        if not missing and wanted:
            problem = f"a class occurs twice in the class list of {len(wanted)}"
        raise DataError(f"{name}: {problem}", "expected one folder per class: ROOT/CLASS/IMAGE")
    labels = {folder: label for label, folder in enumerate(wanted)}
    entries = sorted(
        (path.relative_to(root).as_posix(), labels[folder], path.stat().st_size)
        for folder in wanted
        for path in _images(name, root / folder)
    )
    if not entries:
        raise DataError(f"{name}: no images in {root}", "put images into the class folders")
    files, numbers, sizes = zip(*entries, strict=True)
    return _Listing(root, tuple(wanted), files, numbers, sizes)


def _images(name: str, folder: Path) -> Iterator[Path]:
    for parent, _, files in os.walk(folder):
        for file in files:
            if file.startswith(".") or file.lower() in _CLUTTER:
                continue
            path = Path(parent, file)
            if path.suffix.lower() not in _EXTENSIONS or path.stat().st_size == 0:
                raise DataError(
                    f"{name}: {path} is not an image", "move the file out of the class folders"
                )
            yield path


def _common_side(listing: _Listing) -> tuple[int, int] | None:
    """Width and height if all images are small and of one size; reads headers until one is not."""
    common: tuple[int, int] | None = None
    for path in listing.paths():
        try:
            with Image.open(path) as picture:
                size = picture.size
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as problem:
            raise DataError(
                f"cannot read the image {path}: {problem}", "repair or remove the file"
            ) from problem
        if max(size) > _SMALL_SIDE or size != (common or size):
            return None
        common = size
    return common
