"""The files of a running certificate: records appended line by line, one file per process.

Every process appends to ``parts/NAME-RANK.jsonl``; a record is on the disk before the next is
computed. At the end the leading process writes all of them into ``NAME.jsonl``, in order, and
removes the parts: to the others that is the sign that nothing is left to do.
"""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel

from robust0.errors import RunError
from robust0.files import remove_stale, write_text
from robust0.runs.folder import append_synced, mend, read_lines, writing

PROOFS = "proofs"
TRIALS = "trials"
PARTS = "parts"
M = TypeVar("M", bound=BaseModel)


class Log(Generic[M]):
    """Records of one kind; without a folder nothing is written."""

    def __init__(self, folder: Path | None, name: str, rank: int, model: type[M]) -> None:
        self.folder, self.name, self.rank, self.model = folder, name, rank, model
        self._tails: dict[Path, int] = {}

    def open(self) -> list[M]:
        """Make ready to append; all that earlier processes left here."""
        if self.folder is None:
            return []
        with writing(self.folder, "certify"):
            (self.folder / PARTS).mkdir(exist_ok=True)
            mend(self._own)
        return read_log(self.folder, self.name, self.model)

    def append(self, records: Sequence[M]) -> None:
        """Make records durable."""
        if self.folder is not None and records:
            with writing(self.folder, "certify"):
                append_synced(self._own, (record.model_dump_json() for record in records))

    def others(self) -> list[M]:
        """What other processes have appended since the last call."""
        found: list[M] = []
        if self.folder is None:
            return found
        for path in parts(self.folder, self.name):
            if path == self._own:
                continue
            try:
                with path.open("rb") as file:
                    file.seek(self._tails.get(path, 0))
                    fresh = file.read()
            except FileNotFoundError:
                return found
            whole = fresh[: fresh.rfind(b"\n") + 1]
            self._tails[path] = self._tails.get(path, 0) + len(whole)
            found += [self.model.model_validate_json(line) for line in whole.splitlines()]
        return found

    def merge(self, records: Iterable[M]) -> None:
        """All records, each once and in this order, in the one file that stays."""
        if self.folder is not None:
            with writing(self.folder, "certify"):
                text = "".join(f"{record.model_dump_json()}\n" for record in records)
                write_text(self.folder / f"{self.name}.jsonl", text)

    @property
    def is_merged(self) -> bool:
        """Whether the leading process has come to the end."""
        return self.folder is not None and not (self.folder / PARTS).is_dir()

    @property
    def _own(self) -> Path:
        return (self.folder or Path()) / PARTS / f"{self.name}-{self.rank}.jsonl"


def parts(folder: Path, name: str) -> list[Path]:
    """What each process has appended."""
    return sorted((folder / PARTS).glob(f"{name}-*.jsonl"))


def read_log(folder: Path, name: str, model: type[M]) -> list[M]:
    """Every record of a run; a line cut by a crash is dropped."""
    found: list[M] = []
    for path in (folder / f"{name}.jsonl", *parts(folder, name)):
        for number, record in enumerate(read_lines(path), start=1):
            try:
                found.append(model.model_validate(record))
            except ValueError as problem:
                raise RunError(
                    f"line {number} of {path} is damaged", "certify the model anew"
                ) from problem
    return found


def drop_proof_parts(folder: Path) -> None:
    """Remove the parts after a merge."""
    shutil.rmtree(folder / PARTS, ignore_errors=True)


def clear_leftovers(folder: Path) -> None:
    """Delete temporary files a killed process left; for the leading process."""
    for place in (folder, folder / PARTS):
        if place.is_dir():
            remove_stale(place)
