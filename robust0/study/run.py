"""Runs a study unit by unit: finished units are kept, and a second start goes on after them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robust0.files import write_text
from robust0.study.folder import SCHEMA, Json, UnitStore, write_result
from robust0.study_events import StudyAdvanced, StudyEvent, StudyFinished, StudyStarted

PARTS = ("spectrum", "landscape", "overlap", "interpolate", "gradients", "training")
Tick = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of a study that is done wholly or not at all."""

    name: str  # of its file
    about: str  # shown while it runs
    compute: Callable[[UnitStore, Tick], Json]


@dataclass(frozen=True, slots=True)
class StudyJob:
    """What a part of a study does, and what it depends on."""

    part: str
    title: str
    identity: Json  # what must be equal for a resume; goes into the result
    units: Sequence[Unit]
    fold: Callable[[list[Json]], list[Json]]  # results of all units -> rows of the result
    notes: tuple[str, ...] = field(default=())


def run_study(
    job: StudyJob,
    folder: Path | None = None,
    progress: Callable[[StudyEvent], None] | None = None,
    run: dict[str, Any] | None = None,
) -> Json:
    """Do what is left of a study; its result, written as PART.json if there is a folder.

    Args:
        job: the study.
        folder: where finished units are kept; None: in memory.
        progress: told every event.
        run: what the result should say of this run beside its numbers, such as the command.
    """
    say = progress or _silence
    store = UnitStore(folder, job.part)
    store.open(job.identity)
    found = [store.get(unit.name) for unit in job.units]
    ready = sum(result is not None for result in found)
    say(StudyStarted(job.part, job.title, len(job.units), ready, job.notes))
    results: list[Json] = []
    for number, (unit, known) in enumerate(zip(job.units, found, strict=True)):
        result = known
        if result is None:

            def tick(done: int, total: int, at: int = number, about: str = unit.about) -> None:
                say(StudyAdvanced(at, about, done, total))

            tick(0, 1)
            result = store.put(unit.name, unit.compute(store, tick))
        results.append(result)
    document = {
        "schema": SCHEMA, "part": job.part, "about": job.identity, "results": job.fold(results),
    }  # fmt: skip
    if folder is not None:
        write_result(folder, document)
        if run is not None:
            write_text(folder / job.part / "run.json", json.dumps(run, indent=1) + "\n")
    say(StudyFinished(job.part, None if folder is None else str(folder)))
    return document


def _silence(event: StudyEvent) -> None:
    """Tells nobody."""
