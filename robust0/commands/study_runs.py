"""Finished harden runs as a study of training reads them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robust0.commands.study import require_finished
from robust0.errors import RunError
from robust0.models.checkpoint import read_metadata
from robust0.recipes.load import load_recipe
from robust0.registry import only_named
from robust0.runs.folder import read_lines
from robust0.study.training import RecordedRun

_SHOWN = ("stop_early", "skip_misclassified")


def recorded_runs(folders: Sequence[Path]) -> list[RecordedRun]:
    """The runs of these folders; refuses what is no finished harden run."""
    return [_recorded(folder) for folder in folders]


def _recorded(folder: Path) -> RecordedRun:
    metrics = folder / "metrics.jsonl"
    if not folder.is_dir() or not (folder / "recipe.yaml").is_file() or not metrics.is_file():
        raise RunError(f"{folder} holds no training run", "give a run of robust0 harden")
    require_finished(folder)
    with only_named(()):
        spec = load_recipe(str(folder / "recipe.yaml")).recipe.training
    steps = getattr(spec.inner, "steps", None)
    budget = f"{spec.threat.budget} {spec.threat.unit}s"
    attack = "no attack" if steps is None else f"{steps} step{'' if steps == 1 else 's'}, {budget}"
    settings: dict[str, Any] = {
        name: getattr(spec.inner, name) for name in _SHOWN if hasattr(spec.inner, name)
    }
    return RecordedRun(
        label=folder.absolute().name,
        title=f"{spec.method}, {attack}",
        records=read_lines(metrics),
        classes=read_metadata(folder / "model.safetensors").classes,
        collapse=spec.probe.collapse,
        settings={name: settings.get(name) for name in _SHOWN},
    )
