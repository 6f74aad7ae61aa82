"""The files of a running audit: verdicts appended line by line, their attempts durable before them.

``verdicts.jsonl`` is written by the leading process, ``parts/verdicts-RANK.jsonl`` by the others;
``parts/attempts-RANK-NUMBER.safetensors`` is what one flush of one process left. A flush first
makes its attempts durable, then appends the verdict lines and syncs them, so that a verdict always
has its attempt; an attempt without a verdict is ignored. At the end everything is merged.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from robust0 import upgrades
from robust0.auditing import facts
from robust0.auditing.attempts import Attempts, Key, merged, write_attempts
from robust0.errors import RunError
from robust0.files import remove_stale, sync_folder
from robust0.records import CLEAN, Unit, Verdict
from robust0.runs.folder import append_line, read_lines, writing
from robust0.threats.perturbation import Perturbation

VERDICTS = "verdicts.jsonl"
ATTEMPTS = "attempts.safetensors"
CLOCK = "clock.jsonl"
PARTS = "parts"


def key_of(verdict: Verdict) -> Key:
    """What a verdict is about."""
    return verdict.budget, verdict.attack, verdict.image


class Store:
    """Where verdicts go; without a folder they stay with the caller and nothing is written."""

    def __init__(
        self, folder: Path | None, rank: int, unit: Unit, image_shape: tuple[int, int, int]
    ) -> None:
        self.folder, self.rank, self.unit, self.image_shape = folder, rank, unit, image_shape
        self.seconds: dict[str, float] = {}  # of this process, by attack
        self._unwritten: dict[str, float] = {}
        self._number = 0
        self._tails: dict[Path, int] = {}

    def open(self) -> list[Verdict]:
        """Make ready to append; the verdicts that all earlier processes left here, each once."""
        if self.folder is None:
            return []
        with writing(self.folder):
            parts = self.folder / PARTS
            parts.mkdir(exist_ok=True)
            for path in (self._verdicts, self._own(CLOCK)):
                _mend(path)
            taken = [_shard_number(path) for path in parts.glob(f"attempts-{self.rank}-*")]
            self._number = max(taken, default=-1) + 1
        return read_verdicts(self.folder)

    def flush(self, verdicts: list[Verdict], attempts: Mapping[Key, Perturbation]) -> None:
        """Make outcomes durable: attempts first, then the verdicts that rest on them."""
        if self.folder is None or not verdicts:
            return
        with writing(self.folder):
            self._write_clock()
            if attempts:
                name = f"attempts-{self.rank}-{self._number:06}.safetensors"
                write_attempts(
                    self.folder / PARTS / name, Attempts(self.unit, self.image_shape, attempts)
                )
                self._number += 1
            _append(self._verdicts, (verdict.model_dump_json() for verdict in verdicts))

    def spent(self, attack: str, seconds: float) -> None:
        """Add to the clock of an attack, written with the next flush; "" is the whole run."""
        self.seconds[attack] = self.seconds.get(attack, 0.0) + seconds
        self._unwritten[attack] = self._unwritten.get(attack, 0.0) + seconds

    def close(self) -> None:
        """Write what the clock still holds.

        For the leading process only: when the verdicts of the others are complete, it removes the
        folder they write to.
        """
        if self.folder is not None:
            with writing(self.folder):
                self._write_clock()

    def _write_clock(self) -> None:
        for attack, seconds in self._unwritten.items():
            append_line(self._own(CLOCK), {"attack": attack, "seconds": round(seconds, 3)})
        self._unwritten.clear()

    def others(self) -> list[Verdict]:
        """What other processes have appended since the last call."""
        found: list[Verdict] = []
        if self.folder is None:
            return found
        paths = [self.folder / VERDICTS, *sorted((self.folder / PARTS).glob("verdicts-*.jsonl"))]
        for path in paths:
            if path == self._verdicts:
                continue
            try:
                with path.open("rb") as file:
                    file.seek(self._tails.get(path, 0))
                    fresh = file.read()
            except FileNotFoundError:  # not begun yet, or merged into the first
                continue
            whole = fresh[: fresh.rfind(b"\n") + 1]
            self._tails[path] = self._tails.get(path, 0) + len(whole)
            found += [Verdict.model_validate_json(line) for line in whole.splitlines()]
        return found

    @property
    def _verdicts(self) -> Path:
        return self._own(VERDICTS)

    def _own(self, name: str) -> Path:
        folder = self.folder or Path()
        if self.rank == 0:
            return folder / name
        stem, _, suffix = name.partition(".")
        return folder / PARTS / f"{stem}-{self.rank}.{suffix}"


def read_verdicts(folder: Path) -> list[Verdict]:
    """Every verdict of a run, each once; a line cut by a crash is dropped."""
    found: dict[Key, Verdict] = {}
    for path in (folder / VERDICTS, *sorted((folder / PARTS).glob("verdicts-*.jsonl"))):
        for number, record in enumerate(read_lines(path), start=1):
            try:
                verdict = Verdict.model_validate(upgrades.verdict(record))
            except ValueError as problem:
                raise RunError(
                    f"line {number} of {path} is not a verdict", "start the audit anew"
                ) from problem
            found.setdefault(key_of(verdict), verdict)
    return list(found.values())


def read_clock(folder: Path) -> tuple[float, dict[str, float]]:
    """Seconds of the whole run and of each attack, over all processes and resumptions."""
    seconds: dict[str, float] = {}
    for path in (folder / CLOCK, *sorted((folder / PARTS).glob("clock-*.jsonl"))):
        for number, record in enumerate(read_lines(path), start=1):
            name, spent = record.get("attack"), record.get("seconds")
            if not isinstance(name, str) or not isinstance(spent, int | float):
                raise RunError(
                    f"line {number} of {path} is damaged", "delete the file: only times are lost"
                )
            seconds[name] = seconds.get(name, 0.0) + spent
    return seconds.pop("", 0.0), seconds


def clear_stale(folder: Path) -> None:
    """Delete temporary files a killed process left among the parts; for the leading process."""
    if (folder / PARTS).is_dir():
        remove_stale(folder / PARTS)


def attempts_behind(folder: Path, verdicts: Iterable[Verdict]) -> dict[Key, Perturbation]:
    """The attempt of every verdict, in their order; refuses damaged and missing ones."""
    kept = [path for path in (folder / ATTEMPTS,) if path.exists()]
    held = merged([*kept, *sorted((folder / PARTS).glob("attempts-*.safetensors"))])
    keys = [key_of(verdict) for verdict in verdicts if verdict.attack != CLEAN]
    lost = next((key for key in keys if key not in held), None)
    if lost is not None:
        raise RunError(
            f"the attempt of {lost[1]} on image {lost[2]} is missing from {folder}",
            "start the audit anew",
        )
    return {key: held[key] for key in keys}


def check_files(folder: Path) -> None:
    """Refuse what a run left if any of it is damaged, before hours go into the rest."""
    attempts_behind(folder, read_verdicts(folder))
    read_clock(folder)
    facts.read_checks(folder)


def merge(folder: Path, verdicts: Iterable[Verdict], attempts_of: Attempts) -> None:
    """Bring the parts of all processes into verdicts.jsonl and attempts.safetensors.

    Nothing is removed before its merged copy is durable; being killed in between loses nothing.

    Args:
        folder: the run directory.
        verdicts: all verdicts, in the order in which attempts are to be written.
        attempts_of: gives the unit and the image shape; its attempts are ignored.
    """
    parts = folder / PARTS
    with writing(folder):
        found = attempts_behind(folder, verdicts)
        write_attempts(
            folder / ATTEMPTS, Attempts(attempts_of.unit, attempts_of.image_shape, found)
        )
        for name in (VERDICTS, CLOCK):
            stem = name.partition(".")[0]
            for path in sorted(parts.glob(f"{stem}-*.jsonl")):
                _append(folder / name, _fresh_lines(folder / name, path))
    sync_folder(folder)


def drop_parts(folder: Path) -> None:
    """Remove the parts after a merge."""
    shutil.rmtree(folder / PARTS, ignore_errors=True)


def _fresh_lines(target: Path, source: Path) -> Iterator[str]:
    """The lines of a part that an interrupted merge has not appended yet."""
    there = {json.dumps(record) for record in read_lines(target)}
    return (
        json.dumps(record, separators=(",", ":"))
        for record in read_lines(source)
        if json.dumps(record) not in there
    )


def _append(path: Path, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    with path.open("ab") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def _mend(path: Path) -> None:
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


def _shard_number(path: Path) -> int:
    return int(path.name.removesuffix(".safetensors").rsplit("-", 1)[1])
