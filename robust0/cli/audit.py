"""``robust0 audit``: attack a model, report what withstood, fail where asked to."""

import sys
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robust0.cli import completions, github
from robust0.cli.options import (
    Allow,
    Compile,
    DataDir,
    Device,
    Factory,
    FailUnder,
    Out,
    Overrides,
    Recheck,
    ReportForm,
    Resume,
)
from robust0.cli.recheck import recheck_run
from robust0.views.output import ReportFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robust0.auditing.job import AuditJob
    from robust0.decision import Decision
    from robust0.distributed import World
    from robust0.gate.metrics import Floor
    from robust0.records import Report


class ModeName(StrEnum):
    """Which images each attack sees."""

    BATTERY = "battery"
    CASCADE = "cascade"


class EffortName(StrEnum):
    """How long attacks search."""

    SMOKE = "smoke"
    QUICK = "quick"
    STANDARD = "standard"
    PAPER = "paper"
    CONVERGED = "converged"


class PrecisionName(StrEnum):
    """Precision of the search; verdicts are always float32."""

    AUTO = "auto"
    FP32 = "fp32"
    BF16 = "bf16"


def audit(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A run, a checkpoint, a zoo id or hf-hub:OWNER/NAME.",
            autocompletion=completions.zoo_ids,
        ),
    ] = None,
    eps: Annotated[
        str | None,
        typer.Option(help="Budgets, e.g. 20 or 5,10,20; default: the checkpoint's own."),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="UNIT",
            help="What --eps counts: pixel (default), feature, row, column or patch:SIZE.",
        ),
    ] = None,
    images: Annotated[
        int | None, typer.Option(min=1, help="How many test images; default: 1,000.")
    ] = None,
    effort: Annotated[
        EffortName | None,
        typer.Option(
            help="How long attacks search; default: quick. converged: budgets are doubled on "
            "survivors until a doubling breaks less than --tolerance."
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Percent of all images, with --effort converged; default: 0.5."),
    ] = None,
    max_passes: Annotated[
        int | None,
        typer.Option(min=1, help="Most passes per image with --effort converged; default: 30,000."),
    ] = None,
    max_minutes: Annotated[
        float | None,
        typer.Option(help="For --effort converged: begin no doubling that would end later."),
    ] = None,
    attacks: Annotated[
        str | None,
        typer.Option(
            help="Names, or saa, worst-case, all (default); comma-separated.",
            autocompletion=completions.attacks,
        ),
    ] = None,
    mode: Annotated[
        ModeName | None,
        typer.Option(help="battery (default): all attacks on all images; cascade: on survivors."),
    ] = None,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough", help="Try smaller budgets on all images, not on the fallen only."
        ),
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed of the attacks.")] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="cifar10, sample, folder:PATH, npz:PATH ...; default: the checkpoint's.",
            autocompletion=completions.datasets,
        ),
    ] = None,
    data_dir: DataDir = None,
    factory: Factory = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Take data, budget, mode, effort, images and attacks from a recipe.",
            autocompletion=completions.recipes,
        ),
    ] = None,
    overrides: Overrides = None,
    device: Device = "auto",
    batch_size: Annotated[
        int | None, typer.Option(help="Images per model call; part of the run's identity.")
    ] = None,
    precision: Annotated[
        PrecisionName,
        typer.Option(
            help="Precision of gradients and large layers in the search; verdicts are always "
            "float32. auto: bf16 where the device has it natively, else fp32."
        ),
    ] = PrecisionName.AUTO,
    compile_: Compile = False,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="BASELINE", help="Search with the precision and batch size of a baseline."
        ),
    ] = None,
    out: Out = None,
    resume: Resume = None,
    recheck: Recheck = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run and what it would cost.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 4 if a check says the numbers mislead.")
    ] = False,
    fail_under: FailUnder = None,
    allow: Allow = None,
    form: ReportForm = ReportFormat.AUTO,
) -> None:
    """Attack a model with the l0 battery and report an upper bound on its robust accuracy.

    The report says how far attacks with changed pixels can lower it, and what was not tried.
    """
    from robust0.commands.audit_recipe import AuditOptions
    from robust0.commands.early import check_audit
    from robust0.gate.metrics import parse_floor
    from robust0.views.output import loading, transfer_bars

    floors = [parse_floor(text) for text in fail_under or ()]
    options = AuditOptions(
        model=model, factory=factory, data=data, data_dir=data_dir, recipe=recipe, eps=eps,
        unit=unit, thorough=thorough, images=images,
        effort=None if effort is None else effort.value, attacks=attacks,
        mode=None if mode is None else mode.value, seed=seed, batch_size=batch_size,
        precision=precision.value, compile=compile_, overrides=tuple(overrides or ()), out=out,
        resume=resume, floors=tuple(floors), like=like,
        tolerance=None if tolerance is None else tolerance / 100, max_passes=max_passes,
        max_minutes=max_minutes,
    )  # fmt: skip
    if recheck is not None:
        recheck_run(recheck, options, device, form)
        return
    check_audit(options, device)
    loading("audit")
    from robust0.commands.audit import open_audit
    from robust0.device import resolve_device
    from robust0.distributed import local_device, world

    place = local_device(resolve_device(device))
    command = ("robust0", *sys.argv[1:])
    with world(place) as group, ExitStack() as stack:
        with transfer_bars() as show:
            job, resuming = stack.enter_context(
                open_audit(options, place, group, show, command=command, dry_run=dry_run)
            )
        report = _run(job, group, form, resume=resuming, dry_run=dry_run)
    if report is not None:
        _conclude(report, floors, job.folder, form, strict=strict, allow=tuple(allow or ()))


def _run(
    job: "AuditJob", group: "World", form: ReportFormat, *, resume: bool, dry_run: bool
) -> "Report | None":
    """Announce the audit and run it; its report, for the leading process of a finished run."""
    from robust0.auditing.estimate import cost_plan
    from robust0.auditing.run import run_audit
    from robust0.events import AuditFinished
    from robust0.views.audit import audit_view
    from robust0.views.audit_plan import show_plan

    planned = cost_plan(job, group)
    if group.leads:
        show_plan(planned, form, as_data=dry_run)
    if dry_run:
        return None
    report: Report | None = None
    plain = form is ReportFormat.PLAIN
    with audit_view(plain=plain, silent=not group.leads) as view:
        for event in run_audit(job, group, resume=resume):
            view.show(event)
            if isinstance(event, AuditFinished):
                if event.interrupted is not None:
                    raise typer.Exit(128 + event.interrupted)
                report = event.report
    return report


def _conclude(
    report: "Report",
    floors: "Sequence[Floor]",
    folder: Path | None,
    form: ReportFormat,
    *,
    strict: bool,
    allow: tuple[str, ...],
) -> None:
    """Write the report, then say by the exit code what it means."""
    from robust0.errors import AttackContractError
    from robust0.gate.decide import decide, floor_checks, require_reliable
    from robust0.views.output import note

    decision = decide(report.results, floor_checks(report.results, floors)) if floors else None
    _write(report, decision, form, f"{folder}/report.html")
    if form.is_data:
        note(f"report: {folder}/report.html, report.md, report.json")
    violations = sum(row.violations for b in report.results.budgets for row in b.attacks)
    if violations:
        raise AttackContractError(
            f"attacks broke their own promises {violations} times: no number here may be used",
            f"this is a bug in robust0: please report it with {folder}/verdicts.jsonl",
        )
    if strict or floors:  # a floor must not rest on numbers that mislead
        fatal = [flag.name for flag in report.results.flags if flag.fatal]
        require_reliable(fatal, allow, "this audit")
    if decision is not None:
        for check in decision.checks:
            note(check.message, prose=True)
        note(decision.verdict, "bold green" if decision.passed else "bold red", prose=True)
        github.publish(decision, data_on_stdout=form.is_data)
        raise typer.Exit(decision.exit_code)


def _write(report: "Report", decision: "Decision | None", form: ReportFormat, where: str) -> None:
    from robust0.auditing.finish import report_text
    from robust0.views.report import show_report
    from robust0.writers.junit import gate_junit, report_junit
    from robust0.writers.markdown import gate_markdown, report_markdown

    match form:
        case ReportFormat.JSON:
            sys.stdout.write(report_text(report))
        case ReportFormat.MARKDOWN:
            gate = f"\n{gate_markdown(decision)}" if decision is not None else ""
            sys.stdout.write(report_markdown(report) + gate)
        case ReportFormat.JUNIT:
            cases = gate_junit(decision, report) if decision else report_junit(report)
            sys.stdout.write(cases)
        case _:
            show_report(report, form, where)
