"""What a certificate's folder knows of itself beside its proofs: enough to rebuild every report."""

from pathlib import Path
from typing import Literal

from robust0.errors import RunError
from robust0.files import write_text
from robust0.proofs import CertifySettings, Detail
from robust0.records import Frozen, Subject

RUN = "run.json"
KIND = "certificate"


class CertifyFacts(Frozen):
    """Everything a report says that does not follow from proofs and trials."""

    subject: Subject
    settings: CertifySettings
    class_names: tuple[str, ...]


class CertifyRunFile(Frozen):
    """run.json, written once when a run starts.

    ``identity`` is what a resumed run must have in common with it; ``options`` are what the command
    line needs to build the same job again.
    """

    schema_version: int = 1
    kind: Literal["certificate"] = "certificate"
    identity: dict[str, Detail]
    options: dict[str, Detail | list[int]]
    image_shape: tuple[int, int, int]
    facts: CertifyFacts
    started: str
    command: tuple[str, ...]
    processes: int


def write_certify_run(folder: Path, run: CertifyRunFile) -> None:
    """Write run.json, whole or not at all."""
    write_text(folder / RUN, run.model_dump_json(indent=1) + "\n")


def read_certify_run(folder: Path) -> CertifyRunFile:
    """The run.json of a certificate's folder."""
    path = folder / RUN
    if not path.is_file():
        raise RunError(
            f"{folder} holds no certificate", "give the run directory of robust0 certify"
        )
    try:
        return CertifyRunFile.model_validate_json(path.read_bytes())
    except ValueError as problem:
        raise RunError(
            f"{path} is damaged, or no certificate of this version of robust0",
            "give the run directory of robust0 certify, or certify anew",
        ) from problem


def is_certificate(folder: Path) -> bool:
    """Whether a run directory is one of robust0 certify."""
    try:
        head = (folder / RUN).read_text(encoding="utf-8")[:200]
    except (OSError, UnicodeDecodeError):
        return False
    return f'"kind": "{KIND}"' in head


def check_same_run(folder: Path, identity: dict[str, Detail]) -> None:
    """Refuse to go on with a run that was not made by an equal job, naming the differences."""
    before = read_certify_run(folder).identity
    changed = [
        f"{name} (was {_short(before.get(name))}, is {_short(identity.get(name))})"
        for name in dict.fromkeys((*before, *identity))
        if before.get(name) != identity.get(name)
    ]
    if changed:
        raise RunError(
            f"the run in {folder} was started with another {'; '.join(changed)}",
            "restore what it was started with, or start a new run with -o",
        )


def _short(value: Detail) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:12]}..."
