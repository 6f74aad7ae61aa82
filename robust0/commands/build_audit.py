"""From a model, images and the audit block of a recipe to an AuditJob."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from robust0.attacks.battery import SAA, groups
from robust0.auditing.facts import Facts, Scalar
from robust0.auditing.job import AuditJob
from robust0.auditing.preflight import check_model
from robust0.auditing.rounds import plan_of
from robust0.commands.build_attacks import attack_entries, attack_facts, serving
from robust0.data.imageset import ImageSet
from robust0.device import search_precision, share_cores
from robust0.errors import ModelError, RecipeError
from robust0.models.fast.oracle import MIN_BATCH, VOTING_BATCH, Oracle
from robust0.models.voting import Certifiable
from robust0.recipes.schema import AuditSpec
from robust0.records import CONVERGED, Amount, Settings, Subject, Unit
from robust0.runs.subject import RunSubject
from robust0.threats import UNITS, Threat
from robust0.units import plural
from robust0.wording import images_of
from robust0.writers.artefacts import write_all


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """What to attack, how, and on what hardware."""

    subject: RunSubject  # its images are those of the audit
    audit: AuditSpec
    unit: Unit
    budgets: tuple[Amount, ...]
    recipe: str  # hash of the settings that the audit depends on
    choice: str = "as given"  # how the images were chosen
    thorough: bool = False
    batch_size: int | None = None  # images per model call; None: what suits the device
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # of the search
    compile: bool = False
    threads: int | None = None  # of one model call; None: what suits the device
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def build_audit(request: AuditRequest) -> AuditJob:
    """The job; refuses what the model or the images cannot do, before anything is written."""
    audit, unit = request.audit, request.unit
    network, data, device = request.subject.network, request.subject.data, request.subject.device
    budgets = tuple(sorted(set(request.budgets), reverse=True))
    for budget in budgets:
        Threat.of(budget, unit).check(torch.empty(1, *data.image_shape, device="meta"))
    rows = _rows(request.batch_size, data, device, votes=isinstance(network, Certifiable))
    lanes, threads = share_cores(device, request.threads)
    precision = search_precision(request.precision, device)
    classes = check_model(network, data, rows, device)
    names = _class_names(request.subject, classes)
    entries, unable = serving(attack_entries(audit.attacks), unit)
    settings = Settings(
        recipe=request.recipe,
        mode=audit.mode,
        effort=audit.effort,
        changed=audit.changed,
        tolerance=audit.tolerance if audit.effort == CONVERGED else None,
        max_passes=audit.max_passes if audit.effort == CONVERGED else None,
        max_minutes=audit.max_minutes if audit.effort == CONVERGED else None,
        seed=audit.seed,
        budgets=budgets,
        unit=unit,
        batch_size=rows,
        search_dtype="bfloat16" if precision == "bf16" else "float32",
        compiled=request.compile,
        device=device.type,
        torch=torch.__version__,
    )
    subject = _subject(request.subject, classes, request.choice)
    running = tuple(name for name, _ in entries)
    facts = Facts(
        subject=subject,
        settings=settings,
        thorough=request.thorough,
        class_names=names,
        attacks=attack_facts(entries, settings, data.image_shape, classes),
        ensembles={},
        untested=_untested(subject, settings, sorted(set(groups()["all"]) - set(running))),
    )
    if plan_of(facts).tells(SAA):
        facts = facts.model_copy(update={"ensembles": {"saa": SAA}})
    return AuditJob(
        title=_title(subject, settings),
        folder=None,
        network=network,
        oracle=Oracle(
            network,
            rows,
            device,
            search_dtype=torch.bfloat16 if precision == "bf16" else None,
            compiled=request.compile,
            lanes=lanes,
        ),
        data=data,
        attacks=entries,
        device=device,
        threads=threads,
        facts=facts,
        identity=_identity(facts, request, threads),
        write_reports=write_all,
        about=_about(facts),
        notes=(*request.subject.notes, *request.notes, *_left_out(unable, unit)),
        warnings=request.warnings,
    )


# Not 32: with AVX2, MKL rounds a row of such a product by its place (one to three over sixes do).
_CPU_ROWS = (16, 24, 48)
_GPU_ROWS = (16, 32, 64, 128, 256, 512)


def _rows(wanted: int | None, data: ImageSet, device: torch.device, *, votes: bool = False) -> int:
    least = VOTING_BATCH if votes else MIN_BATCH
    if wanted is not None and wanted < least:
        raise RecipeError(
            f"--batch-size must be at least {least}, got {wanted}",
            "smaller calls round differently and are slower",
        )
    if wanted is not None:
        return wanted
    if votes and device.type != "cuda":
        return VOTING_BATCH
    _, height, width = data.image_shape
    small = height * width <= 64 * 64
    if device.type == "cuda":
        sizes = _GPU_ROWS[: None if small else -2]
    else:
        sizes = _CPU_ROWS if small else _CPU_ROWS[:1]
    # A call is filled up to its row count: a third of the images is what often stays to attack.
    return max((size for size in sizes if size <= len(data) // 3), default=sizes[0])


def _class_names(given: RunSubject, classes: int) -> tuple[str, ...]:
    names = given.data.class_names
    numbered = given.data.name.startswith(("npz:", "given"))  # files may lack the last classes
    if len(names) != classes and not (numbered and len(names) < classes):
        raise ModelError(
            f"the model has {classes} classes, {given.data.name} has {len(names)}",
            "audit it on the data it was trained for",
        )
    if len(names) == classes:
        return names
    known = given.class_names
    return known if len(known) == classes else tuple(str(label) for label in range(classes))


def _subject(given: RunSubject, classes: int, choice: str) -> Subject:
    data = given.data
    ids = ",".join(str(image) for image in data.ids.tolist())
    return Subject(
        model=given.model,
        arch=given.arch,
        sha256=given.sha256,
        method=given.method,
        dataset=data.name,
        split=data.split,
        data_fingerprint=data.content_fingerprint,
        image_ids=hashlib.sha256(ids.encode()).hexdigest(),
        images=len(data),
        image_shape=data.image_shape,
        choice=choice,
        classes=classes,
        mean=given.mean,
        std=given.std,
    )


def _identity(facts: Facts, request: AuditRequest, threads: int) -> dict[str, Scalar]:
    settings, subject = facts.settings, facts.subject
    revisions = ", ".join(f"{attack.name} {attack.revision}" for attack in facts.attacks)
    return {
        "model": request.subject.identity,
        "recipe": settings.recipe,
        "budgets": f"{', '.join(str(b) for b in settings.budgets)} {plural(settings.unit)}",
        "thorough": facts.thorough,
        "data fingerprint": subject.data_fingerprint,
        "image ids": subject.image_ids,
        "seed": settings.seed,
        "attack revisions": revisions,
        "images per call (--batch-size)": settings.batch_size,
        "search precision": settings.search_dtype,
        "compile": settings.compiled,
        "torch version": settings.torch,
        "device": settings.device,
        "threads per call (OMP_NUM_THREADS)": threads,
    }


def _title(subject: Subject, settings: Settings) -> str:
    budgets = ", ".join(str(budget) for budget in settings.budgets)
    unit = plural(settings.unit, 1 if settings.budgets == (1,) else 2)
    model = f"{subject.arch} {subject.method}" if subject.method else subject.arch
    return (
        f"{model} · {subject.dataset} {subject.split}, {images_of(subject)} · "
        f"{budgets} {unit} · {settings.effort_name} · seed {settings.seed}"
    )


def _about(facts: Facts) -> tuple[tuple[str, str], ...]:
    """What the user should see before it starts; defaults included."""
    settings, subject = facts.settings, facts.subject
    plain = all(value == 0 for value in subject.mean) and all(value == 1 for value in subject.std)
    if not subject.mean:
        normalisation = "the network's own"
    elif plain:
        normalisation = "none: the network takes [0, 1]"
    else:
        mean = ", ".join(f"{value:.4g}" for value in subject.mean)
        std = ", ".join(f"{value:.4g}" for value in subject.std)
        normalisation = f"mean {mean}; std {std}"
    digest = f" (sha256 {subject.sha256[:12]})" if subject.sha256 else ""
    smaller = " · smaller budgets on " + ("all images" if facts.thorough else "images that fell")
    speed = f"{settings.batch_size} images per call, {settings.search_dtype} search"
    return (
        ("model", f"{subject.model}{digest}"),
        ("network", f"{subject.arch}, {subject.classes} classes"),
        ("normalisation", normalisation),
        ("data", f"{subject.dataset} {subject.split}, {images_of(subject)}: {subject.choice}"),
        ("budget", f"{', '.join(str(b) for b in settings.budgets)} {plural(settings.unit)}"
         + (smaller if len(settings.budgets) > 1 else "")),
        ("mode", f"{settings.mode}, effort {settings.effort_name}, seed {settings.seed}"),
        *((("changed", ", ".join(settings.changed)),) if settings.changed else ()),
        ("hardware", f"{settings.device}, {speed}" + (", compiled" if settings.compiled else "")),
    )  # fmt: skip


def _left_out(unable: Sequence[str], unit: Unit) -> tuple[str, ...]:
    named = ", ".join(unable)
    return (f"{named} cannot search {plural(unit)} and is left out",) if unable else ()


def _untested(subject: Subject, settings: Settings, idle: Sequence[str]) -> tuple[str, ...]:
    budgets = ", ".join(str(budget) for budget in settings.budgets)
    unit = plural(settings.unit)
    others = ", ".join(plural(kind) for kind in UNITS if kind != settings.unit.partition(":")[0])
    lines = [
        f"more than {budgets.split(',')[0]} changed {unit}, and budgets in {others}",
        "other threats: l1, l2 and l-infinity noise, shifts, corruptions, natural change",
        "targeted attacks, and attacks adapted to a particular defence",
        f"images other than these {subject.images:,} of {subject.dataset}",
    ]
    if idle:
        lines.insert(0, f"attacks that were not run: {', '.join(idle)}")
    return tuple(lines)
