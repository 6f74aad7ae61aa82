"""Finished harden runs as a study of training reads them."""

from collections.abc import Sequence
from pathlib import Path

from robust0.commands.study import require_finished
from robust0.errors import RunError
from robust0.models.checkpoint import read_metadata
from robust0.recipes.load import load_recipe
from robust0.registry import only_named
from robust0.runs.folder import read_lines
from robust0.study.training import RecordedRun
from robust0.training.methods.inner import InnerAttack, SparsePGDInner
from robust0.units import counted


def recorded_runs(folders: Sequence[Path]) -> list[RecordedRun]:
    """The runs of these folders; refuses anything but finished runs of harden."""
    return [_recorded(folder) for folder in folders]


def _recorded(folder: Path) -> RecordedRun:
    metrics = folder / "metrics.jsonl"
    if not folder.is_dir() or not (folder / "recipe.yaml").is_file() or not metrics.is_file():
        raise RunError(f"{folder} holds no training run", "give a run of robust0 harden")
    require_finished(folder)
    with only_named(()):
        spec = load_recipe(str(folder / "recipe.yaml")).recipe.training
    steps = getattr(spec.inner, "steps", None)
    budget = counted(spec.threat.budget, spec.threat.unit)
    attack = "no attack" if steps is None else f"{steps} step{'' if steps == 1 else 's'}, {budget}"
    return RecordedRun(
        label=folder.absolute().name,
        title=f"{spec.method}, {attack}",
        records=read_lines(metrics),
        classes=read_metadata(folder / "model.safetensors").classes,
        collapse=spec.probe.collapse,
        settings=_early_stopping(spec.inner),
    )


def _early_stopping(inner: InnerAttack) -> dict[str, bool | None]:
    """Both halves of early stopping, as they run; none where training has no such attack."""
    if not isinstance(inner, SparsePGDInner):
        return {"stop_early": None, "skip_misclassified": None}
    return {"stop_early": inner.stops, "skip_misclassified": inner.skips}
