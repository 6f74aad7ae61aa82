"""Files that are whole or absent: write beside, sync, rename."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic(target: Path) -> Iterator[Path]:
    """A temporary path in the target's folder; it replaces the target when the block succeeds.

    The file and its folder are synced, so after a crash either the old or the new content is there.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
        sync_folder(target.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def write_text(target: Path, text: str) -> None:
    """Write a whole text file atomically."""
    with atomic(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sync_folder(folder: Path) -> None:
    """Make renames in this folder durable, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_stale(folder: Path) -> None:
    """Delete temporary files that a killed process left behind."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)
