"""From the options of ``robust0 certify`` to a job, and to a locked run directory for it."""

import datetime
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from robust0.auditing.facts import RunFile, write_run
from robust0.auditing.facts import read_run_file as read_audit_run
from robust0.auditing.rundata import RECIPE
from robust0.certifying.bracket import check_matching
from robust0.certifying.classifiers import Sampling
from robust0.certifying.facts import (
    RUN,
    CertifyRunFile,
    check_same_run,
    read_certify_run,
    write_certify_run,
)
from robust0.certifying.finish import AUDIT
from robust0.certifying.job import CertifyJob
from robust0.certifying.store import clear_leftovers
from robust0.commands.audit_recipe import AuditOptions, data_name, resolve_audit
from robust0.commands.build_certify import CertifyRequest, attack_settings, build_certify
from robust0.commands.certify_options import CertifyOptions, pixels_of, refuse_other_settings
from robust0.commands.early import refuse_used
from robust0.commands.named_code import require_factory
from robust0.data.choice import choose
from robust0.distributed import World
from robust0.errors import RecipeError
from robust0.events import Transfer
from robust0.files import write_text
from robust0.gate.certified import check_certified_floors
from robust0.recipes.yaml_source import dump
from robust0.runs.folder import free_number, numbered, owned, writing
from robust0.runs.images import open_images
from robust0.runs.subject import find_model, open_subject

_KEPT = (
    *(
        "model",
        "factory",
        "data",
        "data_dir",
        "eps",
        "images",
        "effort",
        "tried",
        "every_rule",
        "attack",
    ),
    *("audit", "seed", "batch_size", "samples", "choose", "alpha", "condition"),
)
Progress = Callable[[Transfer], None]


@contextmanager
def open_certify(
    options: CertifyOptions,
    device: torch.device,
    world: World,
    progress: Progress,
    *,
    command: tuple[str, ...] = (),
) -> Iterator[tuple[CertifyJob, bool]]:
    """The job, its run directory locked by the leading process, and whether it is resumed.

    Nothing is written before model, data and settings have been accepted.
    """
    named = options.resume or options.out
    # Processes must agree on a folder: the latest clock of all names it.
    moment = 0 if named is not None else world.largest(int(time.time()), device)
    again = options.resume is not None
    if named is not None and world.restarts and (named / RUN).exists():
        # torchrun starts a failed group again with the same arguments: that is a resume.
        options = options.resumed(named)
        again = True
    if again:
        options = _recalled(options)
    job, request = _job(options, device, progress)
    check_certified_floors(options.floors, job.facts.settings)
    folder = named
    if folder is None:  # processes agree on what none of them has made yet
        fresh = _fresh_folder(job, moment)
        folder = numbered(fresh, world.largest(free_number(fresh), device))
    if again:
        check_same_run(folder, job.identity)
        # The words of the first start: results must not depend on where it is taken up again.
        job = replace(job, facts=read_certify_run(folder).facts)
    job = _placed(job, folder)
    with owned(folder) if world.leads else nullcontext():
        if world.leads:
            if again:
                clear_leftovers(folder)
            else:
                _remember(job, folder, options, command, world.size)
            if job.audit is not None and not (folder / AUDIT / RUN).exists():
                _remember_attack(job, folder / AUDIT, request, command, world.size)
        world.wait()  # nobody writes before the folder is theirs
        yield job, again


def _job(
    options: CertifyOptions, device: torch.device, progress: Progress
) -> tuple[CertifyJob, CertifyRequest]:
    reference = find_model(options.model, options.factory, progress)
    options = _as_audited(options)
    like = AuditOptions(
        model=options.model, factory=options.factory, data=options.data,
        data_dir=options.data_dir, images=options.images, seed=options.seed,
        floors=options.floors,
    )  # fmt: skip
    name, warnings = data_name(like, reference)
    recipe = resolve_audit(like, reference, name, None).recipe
    wanted = recipe.audit.images
    whole = open_images(recipe.dataset, "test", options.data_dir, progress)
    data, choice = choose(whole, wanted)
    few = wanted is not None and wanted > len(whole)
    seed = options.seed or 0
    request = CertifyRequest(
        subject=open_subject(reference, data, device, seed=seed),
        pixels=pixels_of(options.eps, data.image_shape),
        sampling=_sampling(options),
        tried=16 if options.tried is None else options.tried,
        every_rule=options.every_rule,
        effort=options.effort or ("quick" if options.attack else "smoke"),
        attack=options.attack,
        seed=seed,
        batch_size=options.batch_size,
        choice=choice,
        notes=(f"{whole.name} has only {len(whole):,} images: all are used",) if few else (),
        warnings=warnings,
    )
    job = build_certify(request)
    if options.audit is not None:
        check_matching(job.facts, job.model, read_audit_run(options.audit), str(options.audit))
        job = replace(job, audit_run=options.audit)
    elif options.attack and not job.certifier.deterministic:
        raise RecipeError(
            "an ablation certificate has no bracket: the smoothed classifier cannot be attacked, "
            "only one that draws some samples",
            "leave out --attack",
        )
    return job, request


def _as_audited(options: CertifyOptions) -> CertifyOptions:
    """Data and images of the audit it is put beside, unless others are asked for."""
    if options.audit is None:
        return options
    subject = read_audit_run(options.audit).facts.subject
    return replace(
        options,
        data=options.data or subject.dataset,
        images=subject.images if options.images is None else options.images,
    )


def _sampling(options: CertifyOptions) -> Sampling:
    known = Sampling()
    return Sampling(
        choose=options.choose or known.choose,
        bound=options.samples or known.bound,
        alpha=known.alpha if options.alpha is None else options.alpha,
        condition=options.condition or known.condition,
    )


def _recalled(options: CertifyOptions) -> CertifyOptions:
    """The options of a run; only files and hardware may change."""
    refuse_other_settings(options)
    folder = options.resume or Path()
    told = read_certify_run(folder).options
    require_factory(folder, told["factory"], options.factory)
    kept: dict[str, Any] = {key: told[key] for key in _KEPT}
    for key in ("data_dir", "audit"):
        kept[key] = None if kept[key] is None else Path(kept[key])
    kept["data_dir"] = options.data_dir or kept["data_dir"]
    return replace(options, **kept)


def _placed(job: CertifyJob, folder: Path) -> CertifyJob:
    audit = None if job.audit is None else replace(job.audit, folder=folder / AUDIT)
    about = (*job.about, ("run", str(folder)))
    return replace(job, folder=folder, audit=audit, about=about)


def _fresh_folder(job: CertifyJob, moment: int) -> Path:
    when = datetime.datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%dT%H-%M-%S")
    subject = job.facts.subject
    words = (re.sub(r"[^A-Za-z0-9.]+", "-", word) for word in (subject.dataset, subject.arch))
    return Path("runs") / f"{when}_certify_{'_'.join(word.strip('-')[-60:] for word in words)}"


def _remember(
    job: CertifyJob,
    folder: Path,
    options: CertifyOptions,
    command: tuple[str, ...],
    processes: int,
) -> None:
    """Everything a resumed run or a rebuilt report needs beside the proofs."""
    refuse_used(folder, "certify")
    kept = {key: asdict(options)[key] for key in _KEPT}
    kept |= {key: _absolute(kept[key]) for key in ("model", "data_dir", "audit")}
    kept["says_data"] = options.says_data
    run = CertifyRunFile(
        identity=job.identity,
        options=kept,
        image_shape=job.data.image_shape,
        facts=job.facts,
        started=_now(),
        command=command,
        processes=processes,
    )
    with writing(folder, "certify"):
        write_certify_run(folder, run)


def _remember_attack(
    job: CertifyJob, folder: Path, request: CertifyRequest, command: tuple[str, ...], processes: int
) -> None:
    """The attacks are an audit like any other: its folder can be read and reported."""
    if job.audit is None:
        return
    run = RunFile(
        chained=True,
        identity=job.audit.identity,
        options={"budgets": list(job.facts.settings.pixels)},
        image_shape=job.data.image_shape,
        facts=job.audit.facts,
        started=_now(),
        command=command,
        processes=processes,
    )
    with writing(folder, "certify"):
        folder.mkdir(exist_ok=True)
        write_text(folder / RECIPE, dump({"audit": attack_settings(request)}))
        write_run(folder, run)


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def _absolute(value: str | Path | None) -> str | None:
    """A path as seen from anywhere; other names stay as they are."""
    if value is None:
        return None
    return str(Path(value).absolute()) if Path(value).exists() else str(value)
