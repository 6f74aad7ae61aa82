"""The files of a running audit: verdicts appended line by line, their attempts durable before them.

``verdicts.jsonl`` is written by the leading process, ``parts/verdicts-RANK.jsonl`` by the others;
``parts/attempts-RANK-NUMBER.safetensors`` is what one flush of one process left. A flush first
makes its attempts durable, then appends the verdict lines and syncs them, so that a verdict always
has its attempt; an attempt without a verdict is ignored. At the end everything is merged.
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from robust0 import upgrades
from robust0.auditing import chain, proof
from robust0.auditing.attempts import Attempts, Key, merged, write_attempts
from robust0.auditing.proof import ATTEMPTS, PARTS, VERDICTS
from robust0.errors import RunError
from robust0.files import remove_stale, sync_folder
from robust0.records import CLEAN, Unit, Verdict
from robust0.runs.folder import append_line, append_synced, mend, read_lines, writing
from robust0.threats.perturbation import Perturbation

CLOCK = "clock.jsonl"


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
        self._chain: chain.Chain | None = None

    def open(self) -> list[Verdict]:
        """Make ready to append; the verdicts that all earlier processes left here, each once."""
        if self.folder is None:
            return []
        with writing(self.folder):
            parts = self.folder / PARTS
            parts.mkdir(exist_ok=True)
            for path in (self._verdicts, self._own(CLOCK)):
                mend(path)
            self._chain = chain.chain_of(self.folder, self._verdicts)
            taken = [_shard_number(path) for path in parts.glob(f"attempts-{self.rank}-*")]
            self._number = max(taken, default=-1) + 1
        return read_verdicts(self.folder)

    def flush(self, verdicts: list[Verdict], attempts: Mapping[Key, Perturbation]) -> None:
        """Make outcomes durable: attempts first, then the verdicts that rest on them."""
        if self.folder is None or not verdicts:
            return
        with writing(self.folder):
            self._write_clock()
            records = [verdict.model_dump(mode="json") for verdict in verdicts]
            if attempts:
                path = self.folder / PARTS / f"attempts-{self.rank}-{self._number:06}.safetensors"
                write_attempts(path, Attempts(self.unit, self.image_shape, attempts))
                self._number += 1
                if self._chain is not None:
                    bound = {"file": path.name, "sha256": chain.file_digest(path)}
                    records.insert(0, {chain.SHARD: bound})
            append_synced(self._verdicts, [_line(self._chain, record) for record in records])

    def bind(self, kind: str, value: object) -> None:
        """Note something beside verdicts in the chain, if the run has one."""
        if self.folder is not None and self._chain is not None:
            with writing(self.folder):
                append_synced(self._verdicts, [self._chain.line({kind: value})])

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
            records = [json.loads(line) for line in whole.splitlines()]
            found += [_verdict(record) for record in records if not chain.is_note(record)]
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
    for path in _files(folder):
        for number, record in enumerate(chain.read_chained(folder, path), start=1):
            if chain.is_note(record):
                continue
            try:
                verdict = _verdict(upgrades.verdict(record))
            except ValueError as problem:
                raise RunError(
                    f"line {number} of {path} is not a verdict", "start the audit anew"
                ) from problem
            found.setdefault(key_of(verdict), verdict)
    return list(found.values())


def _files(folder: Path) -> list[Path]:
    return [folder / VERDICTS, *sorted((folder / PARTS).glob("verdicts-*.jsonl"))]


def _verdict(record: Mapping[str, Any]) -> Verdict:
    return Verdict.model_validate({k: v for k, v in record.items() if k != chain.LINK})


def _line(linked: chain.Chain | None, record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":")) if linked is None else linked.line(record)


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
    held = merged(proof.attempt_files(folder))
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
    proof.check_flags(folder)


def merge_parts(folder: Path, verdicts: Iterable[Verdict], attempts_of: Attempts) -> None:
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
                append_synced(folder / name, _fresh_lines(folder, folder / name, path))
    sync_folder(folder)


def drop_parts(folder: Path) -> None:
    """Remove the parts after a merge."""
    shutil.rmtree(folder / PARTS, ignore_errors=True)


def _fresh_lines(folder: Path, target: Path, source: Path) -> list[str]:
    """The lines of a part that an interrupted merge has not appended yet."""
    read = chain.read_chained if target.name == VERDICTS else _unchained
    there = {json.dumps(record) for record in read(folder, target)}
    linked = chain.chain_of(folder, target) if target.name == VERDICTS else None
    return [
        _line(linked, record)
        for record in read(folder, source)
        if json.dumps(record) not in there and not chain.is_note(record)
    ]


def _unchained(_: Path, path: Path) -> list[dict[str, Any]]:
    return read_lines(path)


def _shard_number(path: Path) -> int:
    return int(path.name.removesuffix(".safetensors").rsplit("-", 1)[1])
