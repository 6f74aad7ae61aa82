"""The weights that a word means on this machine: a file, or a run directory. No torch here."""

from pathlib import Path

from robust0.architectures import is_architecture
from robust0.errors import ZooError
from robust0.files import at_home

LAST, BEST, SUFFIX = "model.safetensors", "best.safetensors", ".safetensors"
_AUDIT = "verdicts.jsonl"


def weights_of(source: str) -> Path | None:
    """The file of a path, or what a training run has exported: its last weights, else its best."""
    path = at_home(source)
    if path.is_dir():
        found = (path / name for name in (LAST, BEST))
        return next((file for file in found if file.is_file()), None)
    return path if path.exists() else None


def is_folder(source: str) -> bool:
    """Whether a word is a folder on this machine, so that it is no id."""
    return at_home(source).is_dir()


def explain_folder(folder: Path) -> None:
    """Refuse a folder in which there is no model, saying what it is instead."""
    files = sorted(path.name for path in folder.glob(f"*{SUFFIX}"))
    if (folder / _AUDIT).exists():
        hint = "name the model that it audited; the folder's run.json says which"
        raise ZooError(f"{folder} is the run of an audit, not a model", hint)
    if (folder / "recipe.yaml").exists():
        raise ZooError(
            f"the training run {folder} has no model yet: its first epoch is not over",
            f"go on with robust0 harden --resume {folder}",
        )
    if (folder / "config.json").exists():
        raise ZooError(f"{folder} is a folder of published weights", f"write local-dir:{folder}")
    raise ZooError(
        f"{folder} holds no model.safetensors",
        f"name the file in it: {', '.join(files[:3])}" if files else "give a run of robust0 harden",
    )


def explain_architecture(name: str) -> None:
    """Refuse the name of a network where a trained model is expected, saying what the two are."""
    if is_architecture(name):
        raise ZooError(
            f"{name} is the name of an architecture, not of a trained model: it has no weights",
            f"train one with robust0 harden --model {name}, or name published weights, such as "
            f"hf-hub:OWNER/{name}",
        )
