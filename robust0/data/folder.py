"""Images in class folders: root/<class>/<image>, or root/train/<class> and root/test/<class>."""

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from robust0.data.catalogue import Split
from robust0.data.decoding import decode_all, sizes
from robust0.data.imageset import DataOrigin, FileSet, ImageSet, TensorSet
from robust0.errors import DataError

_SPLIT_FOLDERS: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("test", "val")}
_EXTENSIONS = {".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".webp", ".tif", ".tiff", ".gif"}
_CLUTTER = {"thumbs.db", "desktop.ini"}
_SMALL_SIDE = 64
_FILE_SIDE = 224
_LOOKED_AT = 20_000  # files whose headers are read before a run begins


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
    found_sizes = _look(listing)
    side = next(iter(found_sizes)) if len(found_sizes) == 1 else None
    labels = torch.tensor(listing.labels)
    if side is not None and max(side) <= _SMALL_SIDE and image_size in (None, side[0]):
        return TensorSet(origin, decode_all(listing.paths(), lambda image: image), labels)
    shown = image_size or _FILE_SIDE
    note = _resizing(found_sizes, shown, asked=image_size is not None)
    return FileSet(
        origin if side == (shown, shown) else replace(origin, notes=(note,)),
        listing.files,
        labels,
        torch.arange(len(labels)),
        sizes=torch.tensor(listing.sizes),
        image_size=shown,
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
    found = [
        (path, labels[folder], path.stat().st_size)
        for folder in wanted
        for path in _files(root / folder)
    ]
    other = [str(p) for p, _, size in found if p.suffix.lower() not in _EXTENSIONS or not size]
    if other:
        names = ", ".join(sorted(other)[:20]) + (f" and {len(other) - 20} more" * (len(other) > 20))
        raise DataError(
            f"{name}: {names} {'is not an image' if len(other) == 1 else 'are not images'}",
            "move such files out of the class folders",
        )
    entries = sorted((p.relative_to(root).as_posix(), label, size) for p, label, size in found)
    if not entries:
        raise DataError(f"{name}: no images in {root}", "put images into the class folders")
    files, numbers, sizes = zip(*entries, strict=True)
    return _Listing(root, tuple(wanted), files, numbers, sizes)


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, files in os.walk(folder):
        for file in files:
            if file.startswith(".") or file.lower() in _CLUTTER:
                continue
            yield Path(parent, file)


def _look(listing: _Listing) -> Counter[tuple[int, int]]:
    """The sizes of the images; of a very large set of photographs only the first are looked at."""
    paths = listing.paths()
    found = sizes(paths[:_LOOKED_AT])
    small = len(found) == 1 and max(next(iter(found))) <= _SMALL_SIDE
    return found + sizes(paths[_LOOKED_AT:]) if small else found


def _resizing(found: Counter[tuple[int, int]], side: int, *, asked: bool) -> str:
    """What happens to images that are not used as they are."""
    if len(found) == 1:
        kinds = "images of {}x{} are".format(*next(iter(found)))
    else:
        least, most = min(found, key=math.prod), max(found, key=math.prod)
        kinds = (
            f"images of {len(found)} sizes, from {least[0]}x{least[1]} to {most[0]}x{most[1]}, are"
        )
    other = "" if asked else "; --set dataset.image_size=N chooses another size"
    return f"{kinds} scaled and cropped to {side}x{side}, and a budget counts those pixels{other}"
