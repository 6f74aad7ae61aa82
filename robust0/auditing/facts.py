"""What a run directory knows of itself beside its verdicts: enough to rebuild every report."""

import json
from pathlib import Path
from typing import Any

from robust0 import upgrades
from robust0.errors import RunError
from robust0.files import write_text
from robust0.records import Amount, Flag, Frozen, Settings, Subject

RUN = "run.json"
CHECKS = "checks.json"
Scalar = int | float | str | bool | None


class AttackFacts(Frozen):
    """A configured attack; ``passes`` is the most an image can cost it, by budget."""

    name: str
    kind: str
    revision: int
    params: dict[str, Scalar]
    notes: tuple[str, ...]
    black_box: bool
    passes: dict[Amount, int]


class Facts(Frozen):
    """Everything a report says that does not follow from verdicts."""

    subject: Subject
    settings: Settings
    thorough: bool
    class_names: tuple[str, ...]
    attacks: tuple[AttackFacts, ...]  # in the order in which they run
    ensembles: dict[str, tuple[str, ...]]  # named groups whose attacks all run
    untested: tuple[str, ...]


class RunFile(Frozen):
    """run.json, written once when a run starts.

    ``identity`` is what a resumed run must have in common with it; ``options`` are what the command
    line needs to build the same job again.
    """

    schema_version: int = 2
    chained: bool = False  # verdict lines carry a chain: see robust0.auditing.chain
    identity: dict[str, Scalar]
    options: dict[str, Scalar | list[int]]
    image_shape: tuple[int, int, int]
    facts: Facts
    started: str
    command: tuple[str, ...]
    processes: int


class Checks(Frozen):
    """checks.json: what the model's behaviour said before the first attack."""

    flags: tuple[Flag, ...]


def write_run(folder: Path, run: RunFile) -> None:
    """Write run.json, whole or not at all."""
    write_text(folder / RUN, run.model_dump_json(indent=1) + "\n")


def read_run_file(folder: Path) -> RunFile:
    """The run.json of a run directory."""
    path = folder / RUN
    if not path.is_file():
        raise RunError(f"{folder} holds no audit", "give the run directory of robust0 audit")
    try:
        return RunFile.model_validate(upgrades.run_file(json.loads(path.read_bytes())))
    except ValueError as problem:
        raise RunError(
            f"{path} is damaged or was written by another version of robust0",
            "start the audit anew",
        ) from problem


def check_identity(folder: Path, identity: dict[str, Scalar]) -> None:
    """Refuse to go on with a run that was not made by an equal job, naming the differences."""
    before = read_run_file(folder).identity
    names = [*before, *(name for name in identity if name not in before)]
    changed = [
        f"{name} (was {_short(before.get(name))}, is {_short(identity.get(name))})"
        for name in names
        if before.get(name) != identity.get(name)
    ]
    if changed:
        raise RunError(
            f"the run in {folder} was started with another {'; '.join(changed)}",
            "restore what it was started with, or start a new run with -o",
        )


# Words that may change between versions, and how the user happened to write the model's name.
_WORDS: Any = {"untested": True, "subject": {"model"}, "attacks": {"__all__": {"notes"}}}


def check_facts(folder: Path, written: Facts, rebuilt: Facts) -> None:
    """Refuse a run whose run.json says other things of it than its recipe, model and images do."""
    before, now = (facts.model_dump(mode="json", exclude=_WORDS) for facts in (written, rebuilt))
    for name, value in before.items():
        if value != now[name]:
            raise RunError(
                f"{RUN} in {folder} was changed: its {name} are not what the run's recipe, model "
                "and images make them",
                "restore the file, or start a new run with -o",
            )


def write_checks(folder: Path, flags: tuple[Flag, ...]) -> None:
    """Remember the flags raised before the attacks."""
    write_text(folder / CHECKS, Checks(flags=flags).model_dump_json(indent=1) + "\n")


def read_checks(folder: Path) -> tuple[Flag, ...] | None:
    """The flags raised before the attacks, or None if the checks have not run."""
    path = folder / CHECKS
    if not path.exists():
        return None
    try:
        return Checks.model_validate_json(path.read_bytes()).flags
    except (ValueError, OSError) as problem:
        raise RunError(
            f"{path} is damaged", "delete it and resume: the model is checked again"
        ) from problem


def _short(value: Scalar) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:12]}..."
