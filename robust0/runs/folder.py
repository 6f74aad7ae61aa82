"""A run directory: one owner at a time, an append-only metrics file, atomic everything else."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from robust0.errors import DiskError, RunError
from robust0.files import read_regular, remove_stale, write_text

_MOST_BYTES = 4 << 30  # of a file of lines

_REPORTS = {"report.json", "report.html", "report.md", "run.json", "verdicts.jsonl"}


def run_folder(path: Path) -> Path:
    """The run directory that a path means: itself, or where its report.json lies."""
    return path.parent if path.name in _REPORTS and path.is_file() else path


def free_number(folder: Path) -> int:
    """The least number with which :func:`numbered` names a folder that does not exist yet."""
    return next(number for number in count(1) if not numbered(folder, number).exists())


def numbered(folder: Path, number: int) -> Path:
    """A folder for the second, third ... run of one name: runs of the same second share theirs."""
    return folder if number == 1 else folder.with_name(f"{folder.name}-{number}")


@contextmanager
def owned(folder: Path) -> Iterator[Path]:
    """Create and lock a run directory; a second process in it is refused."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise RunError(
            f"another process is working in {folder}", "wait for it, or choose another directory"
        ) from None
    except OSError as problem:
        raise RunError(
            f"cannot write to the run directory {folder}: {problem.strerror}",
            "choose a writable directory with -o",
        ) from problem
    try:
        remove_stale(folder)
        yield folder
    finally:
        lock.release()


@contextmanager
def writing(folder: Path, command: str = "audit") -> Iterator[None]:
    """Turn what the disk refuses into a word about the run."""
    try:
        yield
    except OSError as problem:
        gone = "the run directory was removed: " if not folder.is_dir() else ""
        raise DiskError(
            f"{gone}cannot write to {problem.filename or folder}: {problem.strerror or problem}",
            "start anew with another -o"
            if gone
            else f"make room, then go on with robust0 {command} --resume {folder}",
        ) from problem


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append one JSON line; the caller decides when to sync."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, separators=(",", ":")) + "\n")


def append_synced(path: Path, lines: Iterable[str]) -> None:
    """Append lines and wait until they are on the disk."""
    text = "".join(f"{line}\n" for line in lines)
    with path.open("ab") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def mend(path: Path) -> None:
    """Cut off a last line that a crash left unfinished, before anything is appended to it."""
    if not path.exists():
        path.touch()
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
            file.flush()
            os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole JSON lines; a last line cut by a crash is dropped."""
    if not path.exists():
        return []
    records: list[dict[str, Any]] = []
    try:
        lines = read_regular(path, _MOST_BYTES).split(b"\n")
    except OSError as problem:
        raise RunError(
            f"cannot read {path}: {problem.strerror or problem}", "restore the file, or start anew"
        ) from problem
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line) if line else {}
            if not isinstance(record, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError):
            if number < len(lines):
                raise RunError(
                    f"line {number} of {path} is damaged", "the run cannot be resumed; start anew"
                ) from None
        else:
            records += [record] if line else []
    return records


def keep_lines(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrite a JSON-lines file with the records that ``wanted`` accepts."""
    kept = [record for record in read_lines(path) if wanted(record)]
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in kept)
    write_text(path, text)
