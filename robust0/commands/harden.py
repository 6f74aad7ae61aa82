"""From the options of ``robust0 harden`` to a job in a locked run directory."""

import datetime
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from robust0.auditing.preflight import check_model
from robust0.commands.build_training import TrainRequest, build_training
from robust0.commands.harden_recipe import SEEDS, HardenOptions, resolve_training
from robust0.commands.named_code import only_code, own_code, require_factory
from robust0.distributed import World
from robust0.errors import ModelError, RunError
from robust0.events import TrainPlanned, Transfer
from robust0.files import write_text
from robust0.models.checkpoint import read_metadata
from robust0.recipes.load import ResolvedRecipe, dump_recipe, load_recipe
from robust0.registry import only_named
from robust0.runs.folder import owned, writing
from robust0.training.job import TrainJob
from robust0.training.trial import ROWS as TRIAL_ROWS
from robust0.training.trial import rehearse
from robust0.wording import shell
from robust0.zoo.fetch import locate


def fresh_recipe(options: HardenOptions) -> ResolvedRecipe:
    """The recipe of a fresh run; a checkpoint to start from brings its own model and data."""
    if options.start_from is not None and options.factory is None:
        options = _as_checkpoint(options, locate(options.start_from))
    return resolve_training(options)


def _as_checkpoint(options: HardenOptions, path: Path) -> HardenOptions:
    known = read_metadata(path)
    arch = known.spec().arch
    if options.model not in (None, arch) or options.pretrained:
        raise ModelError(
            f"{path} is a {arch} and brings its own weights",
            "leave out --model and --pretrained, or leave out --from",
        )
    return replace(options, model=arch, data=options.data or known.dataset)


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that has been tried out; nothing is written yet."""

    job: TrainJob
    resolved: ResolvedRecipe
    options: HardenOptions
    resuming: bool
    plan: TrainPlanned | None  # of a run that begins


def prepare(
    options: HardenOptions,
    device: torch.device,
    world: World,
    progress: Callable[[Transfer], None],
    *,
    begun: bool = False,
) -> PreparedRun:
    """Build the job and try it out: what is refused here leaves no files behind.

    ``begun``: its folder has been written already, as one of several runs.
    """
    resolved, options = _recall(options) if options.resume else (fresh_recipe(options), options)
    folder = options.resume or options.out or fresh_folder(resolved)
    # torchrun starts a failed group again with the same arguments: that is a resume.
    resuming = options.resume is not None or world.restarts > 0 or begun
    if not resuming:
        refuse_used_folder(folder)
    request = TrainRequest(
        folder=folder,
        device=device,
        data_dir=options.data_dir,
        start_from=options.start_from,
        factory=options.factory,
        compile=options.compile,
        stop_on_overfitting=options.stop_on_co,
        keep_epochs=options.keep_epochs,
        workers=options.workers,
        progress=progress,
    )
    job = build_training(resolved, request)
    plan = None
    if not resuming:
        check_model(job.whole(), job.data, TRIAL_ROWS, device)
        plan = rehearse(job, world.size)
    return PreparedRun(job, resolved, options, resuming, plan)


@contextmanager
def opened(run: PreparedRun, world: World) -> Iterator[None]:
    """The run directory: locked by the leading process, its recipe written down."""
    folder = run.job.folder
    world.wait()
    with owned(folder) if world.leads else nullcontext():
        if world.leads and not (run.resuming and (folder / "recipe.yaml").exists()):
            refuse_used_folder(folder)
            remember(folder, run.resolved, run.options)
        yield


def next_audit(folder: Path) -> str:
    """The command that audits the model of a run; its budget and data stand in the checkpoint."""
    kept = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    words = ["audit", str(folder)]
    words += ["--factory", kept["factory"]] if kept["factory"] else []
    words += ["--data-dir", kept["data_dir"]] if kept["data_dir"] else []
    return shell(*words)


def fresh_folder(resolved: ResolvedRecipe) -> Path:
    """Where a run goes that was given no place."""
    recipe = resolved.recipe
    now = datetime.datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S")
    data = "".join(c if c.isalnum() else "-" for c in recipe.dataset.name)
    return Path("runs") / f"{now}_{data}_{recipe.model.name}_{recipe.training.method}"


def refuse_used_folder(folder: Path) -> None:
    """Refuse to begin a run where one has begun."""
    marks = ("recipe.yaml", SEEDS)
    if any(folder.glob("*.safetensors")) or any((folder / mark).exists() for mark in marks):
        raise RunError(
            f"{folder} already holds a run",
            f"go on with robust0 harden --resume {folder}, or choose another -o",
        )


def remember(folder: Path, resolved: ResolvedRecipe, options: HardenOptions) -> None:
    """What a resumed run needs beside the snapshots."""
    kept = {key: asdict(options)[key] for key in _KEPT}
    kept = {key: str(value) if isinstance(value, Path) else value for key, value in kept.items()}
    kept["command"] = ["robust0", *sys.argv[1:]]
    with writing(folder, "harden"):
        write_text(folder / "options.json", json.dumps(kept, indent=2) + "\n")
        write_text(folder / "recipe.yaml", dump_recipe(resolved.recipe))  # last: it marks a run


_TEXT = (str, type(None))
_KEPT: dict[str, tuple[type, ...]] = {
    "start_from": _TEXT, "factory": _TEXT, "data_dir": _TEXT, "compile": (bool,),
    "stop_on_co": (bool,), "keep_epochs": (bool,), "workers": (int, type(None)),
}  # fmt: skip


def _recall(options: HardenOptions) -> tuple[ResolvedRecipe, HardenOptions]:
    """The recipe and options a run was started with; only files and hardware may change."""
    folder = options.resume or Path()
    if not (folder / "recipe.yaml").is_file() or not (folder / "options.json").is_file():
        raise RunError(f"{folder} holds no training run", "give the -o directory of robust0 harden")
    settings = replace(options, method=None).changes()
    said = settings or options.model or options.recipe or options.start_from or options.out
    if said or not only_code(options.method, options.overrides):
        raise RunError(
            "--resume goes on with the recipe of the run; other settings cannot be changed",
            "leave them out, or start a new run with -o",
        )
    kept = read_kept(folder)
    require_factory(folder, kept["factory"], options.factory)
    if kept["data_dir"] is not None:
        kept["data_dir"] = Path(kept["data_dir"])
    given: dict[str, Any] = {"data_dir": options.data_dir} if options.data_dir else {}
    given |= {"workers": options.workers} if options.workers is not None else {}
    given |= {"stop_on_co": True} if options.stop_on_co else {}
    given |= {"keep_epochs": True} if options.keep_epochs else {}
    if options.compile and not kept["compile"]:
        raise RunError(
            "the run was started without --compile", "leave it out: other kernels round differently"
        )
    with only_named(own_code(options.method, options.overrides)):
        resolved = load_recipe(str(folder / "recipe.yaml"))
    return resolved, replace(options, **(kept | given))


def read_kept(folder: Path) -> dict[str, Any]:
    """options.json of a run, each value of the kind it was written with."""
    path = folder / "options.json"
    try:
        kept = {"keep_epochs": False} | json.loads(path.read_text(encoding="utf-8"))
        return {key: _of_kind(kept[key], kinds) for key, kinds in _KEPT.items()}
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as problem:
        raise RunError(
            f"{path} is damaged: {type(problem).__name__}: {problem}",
            "restore the file, or start a new run with another -o",
        ) from problem


def _of_kind(value: object, kinds: tuple[type, ...]) -> object:
    if type(value) not in kinds:
        raise TypeError(f"unexpected {value!r}")
    return value
