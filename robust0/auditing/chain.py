"""Proof that the files of a run stand as they were written: every line binds all before it.

Each line of verdicts.jsonl carries ``chain``, a digest of the line and of the chain before it; the
first one begins with run.json. Notes between the verdicts bind the other files: ``shard`` (the
attempts of one flush), ``checks`` (the flags of the model) and, at the end, ``seal``. This shows
edits and damage. It is not a signature: whoever rewrites every line makes a new chain.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from robust0.auditing import facts
from robust0.errors import RunError
from robust0.runs.folder import read_lines

LINK = "chain"
SHARD, CHECKS, SEAL = "shard", "checks", "seal"
NOTES = frozenset({SHARD, CHECKS, SEAL})
_HINT = "restore the files of the run, or audit again"


class Chain:
    """The end of a file's chain, to which lines are added."""

    def __init__(self, last: str) -> None:
        self.last = last

    def line(self, record: Mapping[str, Any]) -> str:
        """The text of a record with its link."""
        self.last = _linked(self.last, record)
        return json.dumps({**record, LINK: self.last}, separators=(",", ":"))


def chain_of(folder: Path, path: Path) -> Chain | None:
    """Where a file of this run goes on; None for runs of versions that had no chain."""
    begin = _begin(folder, path)
    if begin is None:
        return None
    records = read_lines(path)
    _verify(path, records, begin)
    return Chain(records[-1][LINK] if records else begin)


def read_chained(folder: Path, path: Path) -> list[dict[str, Any]]:
    """The records of a file, verified, without their links."""
    records = read_lines(path)
    begin = _begin(folder, path)
    if begin is not None:
        _verify(path, records, begin)
    return [{key: value for key, value in r.items() if key != LINK} for r in records]


def is_chained(folder: Path) -> bool:
    """Whether the run was made by a version that keeps a chain."""
    return _begin(folder, folder) is not None


def is_note(record: Mapping[str, Any]) -> bool:
    """Whether a record binds another file instead of being a verdict."""
    return not NOTES.isdisjoint(record)


def digest(value: object) -> str:
    """sha256 of the canonical JSON of plain values."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file; empty where there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require(holds: object, what: str, folder: Path) -> None:
    """Refuse a run whose files do not belong together."""
    if not holds:
        raise RunError(f"the run in {folder} was changed after it was written: {what}", _HINT)


def last_note(records: Iterable[Mapping[str, Any]], kind: str) -> Any:  # noqa: ANN401 - parsed
    """The latest note of a kind, or None."""
    found = [record[kind] for record in records if kind in record]
    return found[-1] if found else None


def _begin(folder: Path, path: Path) -> str | None:
    if not (folder / facts.RUN).exists():
        return None
    run = facts.read_run_file(folder)
    if not run.chained:
        return None
    return digest([path.name, run.model_dump(mode="json")])


def _linked(previous: str, record: Mapping[str, Any]) -> str:
    return digest([previous, record])


def _verify(path: Path, records: list[dict[str, Any]], begin: str) -> None:
    for number, record in enumerate(records, start=1):
        own = {key: value for key, value in record.items() if key != LINK}
        begin = _linked(begin, own)
        if record.get(LINK) != begin:
            what = f"line {number} of {path.name} does not follow from what stands before it"
            if number == 1:
                what = f"{facts.RUN} or the first line of {path.name} is not the one it was"
            require(holds=False, what=what, folder=path.parent)
