"""Names, numbers and paths refused at once: everything here is done before torch is imported.

The same is checked again where it is used; here only what needs neither tensors nor a network.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from robust0.architectures import check_architecture
from robust0.auditing.facts import RUN, read_run_file
from robust0.commands.audit_recipe import AuditOptions, budgets_of, require_said
from robust0.commands.harden_recipe import SEEDS, HardenOptions, resolve_training
from robust0.commands.named_code import only_code, require_factory
from robust0.data.datasets import parse_name
from robust0.device import parse_device
from robust0.errors import DataError, ModelError, RecipeError, RunError
from robust0.recipes.load import load_recipe, recipe_of
from robust0.zoo.fetch import check_source as check_weights

MIN_BATCH = 4  # of a call of a voting model; a plain one needs more, as its audit will say
SECTIONS = ("dataset", "threat", "audit")  # of a recipe, on which an audit depends
PUBLISHED = ("hf-hub:", "local-dir:")
_FACTORY = re.compile(r"([^\W\d]\w*)(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def check_audit(options: AuditOptions, device: str) -> None:
    """Refuse what ``robust0 audit`` cannot run, as far as words tell."""
    parse_device(device)
    if options.resume is not None:
        kept = read_run_file(options.resume).options
        if not kept:
            raise RunError(f"{options.resume} was made by the Python API", "run it again in Python")
        refuse_changes(options)
        require_factory(options.resume, kept.get("factory"), options.factory)
        if options.floors:
            budget, data = (kept.get(key) is not False for key in ("says_budget", "says_data"))
            require_said(budget=budget, data=data, whose="the run")
        return
    if options.floors:
        require_said(budget=options.says_budget, data=options.says_data, whose="this audit")
    check_model_name(options.model, options.factory)
    check_data_name(options.data, options.data_dir)
    if options.eps is not None:
        budgets_of(options.eps, options.unit, None)
    if options.batch_size is not None and options.batch_size < MIN_BATCH:
        raise RecipeError(
            f"--batch-size must be at least {MIN_BATCH}, got {options.batch_size}",
            "smaller calls round differently and are slower",
        )
    refuse_unread(options.overrides, SECTIONS, "an audit")
    resolved = load_recipe(
        options.recipe or recipe_of(options.data),
        changes=options.settings(),
        overrides=options.overrides,
    )
    ends = (options.tolerance, options.max_passes, options.max_minutes)
    if any(value is not None for value in ends) and resolved.recipe.audit.effort != "converged":
        raise RecipeError(
            "--tolerance, --max-passes and --max-minutes say when --effort converged ends",
            "add --effort converged, or leave them out",
        )
    if options.out is not None:
        refuse_used(options.out)


def refuse_unread(overrides: Sequence[str], sections: Sequence[str], whose: str) -> None:
    """Refuse ``--set`` of what nothing would read."""
    for text in overrides:
        key = text.partition("=")[0].strip()
        if "." in key and key.partition(".")[0] not in sections:
            raise RecipeError(
                f"--set {key} changes nothing: {whose} reads {', '.join(sections)} of a recipe",
                "leave it out",
            )


def check_harden(options: HardenOptions, device: str) -> None:
    """Refuse what ``robust0 harden`` cannot run, as far as words tell."""
    parse_device(device)
    if options.resume is not None:
        if options.seeds:
            raise RunError("--resume goes on with the seeds of the run", "leave out --seeds")
        names = ("recipe.yaml", "options.json")
        begun = (options.resume / SEEDS).is_file()
        if not begun and not all((options.resume / name).is_file() for name in names):
            raise RunError(
                f"{options.resume} holds no training run", "give the -o directory of robust0 harden"
            )
        return
    if options.factory is not None or options.start_from is not None:
        check_model_name(options.start_from, options.factory)
        whose = "a run that brings its own network"
        refuse_unread(options.overrides, ("dataset", "threat", "training", "audit"), whose)
    check_data_name(options.data, options.data_dir)
    model = resolve_training(options).recipe.model
    if options.factory is None and not model.name.startswith(PUBLISHED):
        check_architecture(model.name)


def check_model_name(model: str | None, factory: str | None) -> None:
    """Refuse a MODEL that does not exist, and what cannot be a factory."""
    if factory is not None:
        _check_factory(factory)
    if model is None and factory is None:
        raise ModelError(
            "no model was named",
            "give a run directory, a checkpoint, an id from robust0 zoo list, hf-hub:OWNER/NAME or "
            "--factory",
        )
    if model is not None and not model.startswith(PUBLISHED):
        check_weights(model)


def refuse_used(folder: Path, command: str = "audit") -> None:
    """Refuse to begin a run in a folder that holds one."""
    if any((folder / name).exists() for name in (RUN, "verdicts.jsonl", "options.json")):
        raise RunError(
            f"{folder} already holds a run",
            f"go on with robust0 {command} --resume {folder}, or choose another -o",
        )


def refuse_changes(options: AuditOptions) -> None:
    """Refuse settings beside ``--resume``."""
    same = AuditOptions(
        resume=options.resume, data_dir=options.data_dir, floors=options.floors,
        factory=options.factory, attacks=options.attacks, overrides=options.overrides,
    )  # fmt: skip
    if options != same or not only_code(options.attacks, options.overrides):
        raise RunError(
            "--resume goes on with the settings of the run; they cannot be changed",
            "leave out all but --device, --data-dir, --strict, --fail-under, --output-format and "
            "the names of your own code",
        )


def check_data_name(name: str | None, data_dir: Path | None) -> None:
    """Refuse data that do not exist."""
    path = None if name is None else parse_name(name)[1]
    if path is not None and not path.exists():
        kind = "folder" if str(name).startswith("folder:") else "file"
        raise DataError(f"{name}: there is no {kind} {path}", "check the path and its spelling")
    if data_dir is not None and not data_dir.is_dir():
        raise DataError(f"there is no folder {data_dir}", "give --data-dir the folder of the data")


def _check_factory(name: str) -> None:
    match = _FACTORY.fullmatch(name)
    if match is None:
        raise ModelError(f"{name[:160]!r} does not name a factory", "use package.module:callable")
    here = os.getcwd()  # noqa: PTH109 - sys.path holds strings
    if here not in sys.path:
        sys.path.insert(0, here)  # as robust0.models.factory searches
    importlib.invalidate_caches()
    if importlib.util.find_spec(match[1]) is None:
        raise ModelError(
            f"there is no module {match[1]} for the factory {name}",
            f"run where it can be imported; {here} was searched too",
        )
