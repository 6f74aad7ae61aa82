"""What training runs recorded: curves, and the moment of catastrophic overfitting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robust0.errors import RunError
from robust0.study.folder import Json
from robust0.study.run import StudyJob
from robust0.training.watch import Reading, alarm

_EPOCH = ("epoch", "clean", "training_attack", "probe")
_STEP = ("step", "epoch", "loss", "learning_rate", "gradient_norm", "clean_accuracy")


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The metrics of a finished harden run, with what its recipe says."""

    label: str
    title: str  # method, budget, steps of the attack
    records: Sequence[Mapping[str, Any]]
    classes: int
    collapse: float  # probe accuracy below which a run counts as collapsed
    settings: Mapping[str, Any]  # stop_early, skip_misclassified and such


def overfitting_moment(run: RecordedRun) -> Json | None:
    """The first epoch at which the watch raises its alarm, with its reason; None: never."""
    best = -1.0
    for record in run.records:
        if record["event"] == "overfitting":
            return {key: record[key] for key in ("epoch", "step", "reason")}
    # Runs of earlier versions did not record it.
    for record in run.records:
        if record["event"] != "epoch" or record["epoch"] == 0:
            continue
        reading = Reading(
            record["images"], record["clean"], record["training_attack"], record["probe"]
        )
        reason = alarm(reading, best, run.classes, run.collapse)
        if reason is not None:
            return {"epoch": record["epoch"], "step": record["step"], "reason": reason}
        best = max(best, record["probe"])
    return None


def curves(run: RecordedRun) -> Json:
    """Everything that a page shows of a run."""
    epochs = [record for record in run.records if record["event"] == "epoch"]
    steps = [record for record in run.records if record["event"] == "step"]
    if not steps:
        raise RunError(f"{run.label} recorded no steps", "give a finished run of robust0 harden")
    norms = [record["gradient_norm"] for record in steps]
    probes = [record["probe"] for record in epochs]
    return {
        "model": run.label,
        "title": run.title,
        "settings": dict(run.settings),
        "moment": overfitting_moment(run),
        "epochs": {key: [record[key] for record in epochs] for key in _EPOCH},
        "probe_name": epochs[-1]["probe_name"] if epochs else None,
        "steps": {key: [record.get(key) for record in steps] for key in _STEP},
        "per_epoch": steps[-1]["step"] / max(1, steps[-1]["epoch"] + 1),
        "best_probe": max(probes, default=None),
        "last_probe": probes[-1] if probes else None,
        "gradient_norm": {"median": sorted(norms)[len(norms) // 2], "highest": max(norms)},
    }


def training_job(runs: Sequence[RecordedRun]) -> StudyJob:
    """The curves of several runs; nothing is computed, so there are no units."""
    rows = [curves(run) for run in runs]
    identity = {"runs": [{"label": run.label, "title": run.title} for run in runs]}
    title = ", ".join(run.label for run in runs)
    return StudyJob("training", title, identity, (), lambda _: rows)
