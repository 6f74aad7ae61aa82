"""What the chain of a run binds besides its verdicts: attempts, flags, clean images, the report."""

import json
from pathlib import Path
from typing import Any

from robust0.auditing import chain
from robust0.auditing.facts import read_checks
from robust0.errors import RunError
from robust0.records import Flag
from robust0.runs.folder import append_synced, writing

VERDICTS = "verdicts.jsonl"
ATTEMPTS = "attempts.safetensors"
CLEAN_IMAGES = "clean.safetensors"
REPORT = "report.json"
PARTS = "parts"


def flags_digest(flags: tuple[Flag, ...]) -> str:
    """Of the checks of a model."""
    return chain.digest([flag.model_dump(mode="json") for flag in flags])


def attempt_files(folder: Path) -> list[Path]:
    """The files that hold the attempts of a run, each as it was written."""
    whole, shards = folder / ATTEMPTS, sorted((folder / PARTS).glob("attempts-*.safetensors"))
    if not chain.is_chained(folder):
        return [*([whole] if whole.exists() else []), *shards]
    bound: dict[str, str] = {}
    for path in (folder / VERDICTS, *sorted((folder / PARTS).glob("verdicts-*.jsonl"))):
        notes = [r[chain.SHARD] for r in chain.read_chained(folder, path) if chain.SHARD in r]
        bound |= {note["file"]: note["sha256"] for note in notes}
    known = [path for path in shards if path.name in bound]  # others were never finished
    for path in known:
        same = chain.file_digest(path) == bound[path.name]
        chain.require(same, f"{path.name} is not the file it was", folder)
    seal = sealed(folder)
    if seal is None:
        return known
    same = chain.file_digest(whole) == seal["attempts"]
    chain.require(same, f"{ATTEMPTS} is not the file it was", folder)
    return [whole]


def check_flags(folder: Path) -> None:
    """Refuse flags that were changed or taken away."""
    note = chain.last_note(chain.read_chained(folder, folder / VERDICTS), chain.CHECKS)
    flags = read_checks(folder)
    if note is not None:
        same = flags is not None and flags_digest(flags) == note
        chain.require(same, "the flags in checks.json are not those that were raised", folder)


def seal(folder: Path) -> None:
    """Close a finished run: from now on none of its files can change unseen."""
    linked = chain.chain_of(folder, folder / VERDICTS)
    value = _contents(folder)
    if linked is not None and sealed(folder) != value:
        with writing(folder):
            append_synced(folder / VERDICTS, [linked.line({chain.SEAL: value})])


def sealed(folder: Path) -> dict[str, Any] | None:
    """The seal of a run, if it has been finished and nothing came after."""
    records = chain.read_chained(folder, folder / VERDICTS)
    return records[-1].get(chain.SEAL) if records else None


def check_seal(folder: Path, *, results: bool = True) -> None:
    """Refuse a finished run of which a file was changed, taken away or added to.

    Without ``results`` those in report.json are left out: they are about to be made anew.
    """
    if not chain.is_chained(folder):
        return
    check_flags(folder)
    seal = sealed(folder)
    if seal is None:
        raise RunError(
            f"the run in {folder} is not finished: {VERDICTS} has no seal at its end",
            f"go on with robust0 audit --resume {folder}",
        )
    for name, value in _contents(folder).items():
        if name == "results" and not results:
            continue
        chain.require(seal.get(name) == value, f"{_NAMES[name]} are not what they were", folder)


_NAMES = {
    "attempts": "the attempts",
    "clean": "the clean images",
    "checks": "the flags of the checks",
    "results": "the results in report.json",
    "verdicts": "the verdicts",
}


def _contents(folder: Path) -> dict[str, Any]:
    records = chain.read_chained(folder, folder / VERDICTS)
    flags = read_checks(folder)
    try:
        results = json.loads((folder / REPORT).read_bytes())["results"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        results = None
    return {
        "attempts": chain.file_digest(folder / ATTEMPTS),
        "clean": chain.file_digest(folder / CLEAN_IMAGES),
        "checks": "" if flags is None else flags_digest(flags),
        "results": chain.digest(results),
        "verdicts": sum(not chain.is_note(record) for record in records),
    }
