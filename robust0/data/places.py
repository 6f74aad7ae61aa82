"""Where datasets are kept, and how a decoded one is recognised; no numpy, no torch."""

from pathlib import Path

from robust0.resources import cache_dir

MANIFEST = "decoded.json"


def data_cache() -> Path:
    """Where datasets are kept unless --data-dir says otherwise."""
    return cache_dir() / "data"


def is_decoded(folder: Path) -> bool:
    """Whether a folder holds a decoded dataset, by its manifest."""
    return (folder / MANIFEST).is_file()
