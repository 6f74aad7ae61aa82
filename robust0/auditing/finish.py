"""The end of a run: parts merged, clean images kept, the report written; and rebuilt from files."""

import datetime
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from robust0.auditing import store
from robust0.auditing.agreement import sound
from robust0.auditing.attempts import Attempts
from robust0.auditing.deadline import timed_out
from robust0.auditing.facts import Facts, read_checks, read_run_file
from robust0.auditing.plan import Book
from robust0.auditing.proof import CLEAN_IMAGES, REPORT, check_seal, seal
from robust0.auditing.rounds import plan_of
from robust0.auditing.summary import summarise_audit
from robust0.errors import RunError
from robust0.files import atomic, write_text
from robust0.records import CLEAN, Report, Results, RunInfo, Verdict
from robust0.runs.folder import writing

KEEP_ALL = 64_000_000  # bytes of clean images up to which all are kept for the gallery
EXAMPLES = 24


def ordered(facts: Facts, images: Sequence[int], book: Book) -> list[Verdict]:
    """All verdicts in the order of stages and images, whoever found them and when."""
    keys = [(0, CLEAN), *plan_of(facts).stages()]
    found = (book.verdicts.get((*stage, image)) for stage in keys for image in images)
    return [verdict for verdict in found if verdict is not None]


def kept_images(
    facts: Facts, images: Sequence[int], book: Book, image_shape: tuple[int, int, int]
) -> list[int]:
    """The images whose clean pixels are kept: all, or of large ones some that fell first."""
    if len(images) * math.prod(image_shape) <= KEEP_ALL:
        return list(images)
    fallen = book.fallen.get(facts.settings.budgets[0], set())
    broken = [image for image in images if image in fallen]
    standing = [image for image in images if image in book.correct and image not in fallen]
    return sorted([*broken, *standing][:EXAMPLES], key=list(images).index)


def write_clean(
    folder: Path, ids: Sequence[int], labels: Sequence[int], images: NDArray[np.uint8]
) -> None:
    """Keep clean images (N, C, H, W), so that a gallery needs no dataset."""
    tensors: dict[str, NDArray[Any]] = {
        "ids": np.array(ids, dtype=np.int64),
        "labels": np.array(labels, dtype=np.int64),
        "images": np.ascontiguousarray(images),
    }
    with atomic(folder / CLEAN_IMAGES) as temporary:
        temporary.write_bytes(save(tensors))


@dataclass(frozen=True, slots=True)
class KeptImages:
    """Clean images that stay with a run: ids, labels, pixels (N, C, H, W)."""

    ids: Sequence[int]
    labels: Sequence[int]
    pixels: NDArray[np.uint8]


def conclude(
    folder: Path,
    verdicts: Sequence[Verdict],
    results: Results,
    clean: KeptImages,
    processes: int,
    versions: Mapping[str, str],
) -> Report:
    """Merge what all processes left, write the report and seal it; being killed loses nothing."""
    clock = store.read_clock(folder)  # before the parts' own are merged into the first
    merge_parts(folder, verdicts)
    start = read_run_file(folder)
    info = run_info(start.started, start.command, clock, processes, versions)
    report = Report(results=results, run=info)
    with writing(folder):
        write_clean(folder, clean.ids, clean.labels, clean.pixels)
        write_report(folder, report)
    seal(folder)
    store.drop_parts(folder)
    return report


def merge_parts(folder: Path, verdicts: Sequence[Verdict]) -> None:
    """One verdicts.jsonl and one attempts.safetensors from what all processes wrote."""
    run = read_run_file(folder)
    store.merge_parts(folder, verdicts, Attempts(run.facts.settings.unit, run.image_shape, {}))


def run_info(
    started: str,
    command: tuple[str, ...],
    clock: tuple[float, Mapping[str, float]],
    processes: int,
    versions: Mapping[str, str],
) -> RunInfo:
    """What may differ between identical runs."""
    seconds, attacks = clock
    return RunInfo(
        started=started,
        finished=now(),
        seconds=round(seconds, 3),
        attack_seconds={name: round(value, 3) for name, value in attacks.items()},
        processes=processes,
        host=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        versions=dict(versions),
        command=command,
    )


def now() -> str:
    """The present moment in ISO form."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def report_text(report: Report) -> str:
    """report.json in canonical form: sorted keys, so that equal results are equal bytes."""
    document = report.model_dump(mode="json", by_alias=True)
    return json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n"


def write_report(folder: Path, report: Report) -> None:
    """Write report.json, whole or not at all."""
    write_text(folder / REPORT, report_text(report))


def rebuild_report(folder: Path) -> Report:
    """Fold report.json anew from the verdicts of a finished run, and write it."""
    run, verdicts = read_run_file(folder), sound(store.read_verdicts(folder), folder)
    book = Book()
    book.add(verdicts)
    images = [verdict.image for verdict in verdicts if verdict.attack == CLEAN]
    check_seal(folder, results=False)
    flags = read_checks(folder)
    book.timed_out = timed_out(flags or ())
    unfinished = len(images) < run.facts.subject.images
    if flags is None or unfinished or not plan_of(run.facts).complete(images, book):
        raise RunError(
            f"the run in {folder} is not finished",
            f"go on with robust0 audit --resume {folder}",
        )
    path = folder / REPORT
    if path.is_file():
        info = Report.model_validate_json(path.read_bytes()).run
    else:
        info = run_info(run.started, run.command, store.read_clock(folder), run.processes, {})
    results = summarise_audit(run.facts, ordered(run.facts, images, book), flags)
    report = Report(results=results, run=info)
    write_report(folder, report)
    seal(folder)  # anew only if this version says something else of the same verdicts
    return report
