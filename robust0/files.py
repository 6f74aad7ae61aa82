"""Files that are whole or absent (write beside, sync, rename), and files that others wrote."""

import contextlib
import errno
import os
import stat
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


def at_home(path: str | Path) -> Path:
    """A path with ``~`` spelled out; the home of a user who does not exist stays a plain name."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def read_regular(path: Path, limit: int) -> bytes:
    """A file that somebody else names: OSError for a pipe or a device, and beyond the limit."""
    kind = path.stat().st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", str(path))
    return data
