"""From the options of ``robust0 audit`` to a job, and to a locked run directory for it."""

import datetime
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import torch

from robust0.auditing.facts import (
    RUN,
    RunFile,
    check_facts,
    check_identity,
    read_run_file,
    write_run,
)
from robust0.auditing.job import AuditJob
from robust0.auditing.store import check_files, clear_stale
from robust0.commands.audit_recipe import (
    AuditOptions,
    budgets_of,
    check_floors,
    data_name,
    resolve_audit,
)
from robust0.commands.build_audit import AuditRequest, build_audit
from robust0.commands.early import SECTIONS, refuse_changes, refuse_used
from robust0.commands.gate import open_baseline
from robust0.commands.named_code import own_code, require_factory
from robust0.data.choice import choose
from robust0.data.decoding import require_readable
from robust0.data.imageset import FileSet
from robust0.distributed import World
from robust0.errors import RecipeError
from robust0.events import Transfer
from robust0.files import write_text
from robust0.recipes.load import ResolvedRecipe, dump_recipe, load_recipe, section_hash
from robust0.records import Amount
from robust0.registry import only_named
from robust0.runs.folder import free_number, numbered, owned, writing
from robust0.runs.images import open_images
from robust0.runs.subject import ModelReference, find_model, open_subject

_RECIPE = "recipe.yaml"
_KEPT = ("model", "factory", "data_dir", "thorough", "batch_size", "precision", "compile")


@contextmanager
def open_audit(
    options: AuditOptions,
    device: torch.device,
    world: World,
    progress: Callable[[Transfer], None],
    *,
    command: tuple[str, ...] = (),
    dry_run: bool = False,
) -> Iterator[tuple[AuditJob, bool]]:
    """The job, its run directory locked by the leading process, and whether it is resumed.

    Nothing is written before model, data and settings have been accepted; a dry run writes nothing.
    """
    if options.resume is None and options.out is None:
        # Processes must agree on a folder: the latest clock of all names it.
        moment = world.largest(int(time.time()), device)
    else:
        moment = 0
    folder = options.resume or options.out
    again = options.resume is not None
    if folder is not None and world.restarts and (folder / RUN).exists():
        # torchrun starts a failed group again with the same arguments: that is a resume.
        options = AuditOptions(
            resume=folder, data_dir=options.data_dir, floors=options.floors,
            factory=options.factory, attacks=",".join(own_code(options.attacks, ())) or None,
            overrides=tuple(text for text in options.overrides if own_code(None, (text,))),
        )  # fmt: skip
        again = True
    options = _like(options)
    begin = _recalled if again else _fresh
    job, resolved = begin(options, device, progress)
    check_floors(options.floors, job.facts)
    if world.size > 1 and job.facts.settings.max_minutes is not None:
        raise RecipeError(
            "a limit of time is for one process: several would have to agree on the moment",
            "limit the passes instead: --max-passes",
        )
    if dry_run:
        yield job, again
        return
    if folder is None:  # processes agree on what none of them has made yet
        fresh = _fresh_folder(job, moment)
        folder = numbered(fresh, world.largest(free_number(fresh), device))
    job = replace(job, folder=folder, about=(*job.about, ("run", str(folder))))
    with owned(folder) if world.leads else nullcontext():
        if world.leads:
            if again:
                clear_stale(folder)
                check_files(folder)
            else:
                _remember(folder, job, resolved, options, command, world.size)
        world.wait()  # nobody writes before the folder is theirs
        yield job, again


def _like(options: AuditOptions) -> AuditOptions:
    """Search as a baseline's run did, where the command line leaves it open."""
    if options.like is None:
        return options
    theirs = open_baseline(options.like).settings
    precision: Literal["fp32", "bf16"] = "bf16" if theirs.search_dtype == "bfloat16" else "fp32"
    return replace(
        options,
        like=None,
        precision=precision if options.precision == "auto" else options.precision,
        compile=options.compile or theirs.compiled,
        batch_size=options.batch_size or theirs.batch_size,
    )


def _fresh(
    options: AuditOptions, device: torch.device, progress: Callable[[Transfer], None]
) -> tuple[AuditJob, ResolvedRecipe]:
    reference = find_model(options.model, options.factory, progress)
    name, warnings = data_name(options, reference)
    known = reference.metadata.eval_budget if reference.metadata is not None else None
    asked = budgets_of(options.eps, options.unit, None if options.says_budget else known)
    resolved = resolve_audit(options, reference, name, asked)
    budgets = asked[0] if asked else (resolved.recipe.threat.budget,)
    job = _build(options, resolved, reference, budgets, device, progress, warnings)
    return job, resolved


def _recalled(
    options: AuditOptions, device: torch.device, progress: Callable[[Transfer], None]
) -> tuple[AuditJob, ResolvedRecipe]:
    """The job of a run, from its own recipe and options; only files and hardware may change."""
    folder = options.resume or Path()
    run = read_run_file(folder)
    refuse_changes(options)
    kept: dict[str, Any] = dict(run.options)
    require_factory(folder, kept["factory"], options.factory)
    budgets = tuple(kept.pop("budgets"))
    kept = {key: kept[key] for key in _KEPT}
    kept["data_dir"] = options.data_dir or (Path(kept["data_dir"]) if kept["data_dir"] else None)
    with only_named(own_code(options.attacks, options.overrides)):
        resolved = load_recipe(str(folder / _RECIPE))
    options = replace(options, **kept)
    reference = find_model(options.model, options.factory, progress)
    job = _build(options, resolved, reference, budgets, device, progress, ())
    check_identity(folder, job.identity)  # names what differs
    check_facts(folder, run.facts, job.facts)
    # The words of the first start: results must not depend on where the run is taken up again.
    return replace(job, facts=run.facts), resolved


def _build(
    options: AuditOptions,
    resolved: ResolvedRecipe,
    reference: ModelReference,
    budgets: tuple[Amount, ...],
    device: torch.device,
    progress: Callable[[Transfer], None],
    warnings: tuple[str, ...],
) -> AuditJob:
    recipe = resolved.recipe
    wanted = recipe.audit.images
    whole = open_images(recipe.dataset, "test", options.data_dir, progress)
    data, choice = choose(whole, wanted)
    if isinstance(data, FileSet):  # all that cannot be decoded are named now, not one an hour
        require_readable([data.path(position) for position in range(len(data))])
    notes = list(whole.origin.notes)
    if wanted is not None and wanted > len(whole):
        notes.append(f"{whole.name} has only {len(whole):,} images: all are used")
    request = AuditRequest(
        subject=open_subject(reference, data, device, seed=recipe.audit.seed),
        audit=recipe.audit,
        unit=recipe.threat.unit,
        budgets=budgets,
        choice=choice,
        recipe=section_hash(recipe, *SECTIONS),
        thorough=options.thorough,
        batch_size=options.batch_size,
        precision=options.precision,
        compile=options.compile,
        notes=tuple(notes),
        warnings=warnings,
    )
    return build_audit(request)


def _fresh_folder(job: AuditJob, moment: int) -> Path:
    when = datetime.datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%dT%H-%M-%S")
    subject = job.facts.subject
    words = (re.sub(r"[^A-Za-z0-9.]+", "-", word) for word in (subject.dataset, subject.arch))
    return Path("runs") / f"{when}_audit_{'_'.join(word.strip('-')[-60:] for word in words)}"


def _remember(
    folder: Path,
    job: AuditJob,
    resolved: ResolvedRecipe,
    options: AuditOptions,
    command: tuple[str, ...],
    processes: int,
) -> None:
    """Everything a resumed run or a rebuilt report needs beside the verdicts."""
    refuse_used(folder)
    kept = {key: asdict(options)[key] for key in _KEPT}
    kept = {key: str(value) if isinstance(value, Path) else value for key, value in kept.items()}
    settings = job.facts.settings
    kept |= {"model": _absolute(options.model), "budgets": list(settings.budgets)}
    kept |= {"says_budget": options.says_budget, "says_data": options.says_data}
    kept["precision"] = "bf16" if settings.search_dtype == "bfloat16" else "fp32"  # not auto
    run = RunFile(
        chained=True,
        identity=job.identity,
        options=kept,
        image_shape=job.data.image_shape,
        facts=job.facts,
        started=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        command=command,
        processes=processes,
    )
    with writing(folder):
        write_text(folder / _RECIPE, dump_recipe(resolved.recipe))
        write_run(folder, run)  # last: a folder with it can be resumed


def _absolute(model: str | None) -> str | None:
    """A checkpoint's path as seen from anywhere; other names stay as they are."""
    return str(Path(model).absolute()) if model and Path(model).exists() else model
