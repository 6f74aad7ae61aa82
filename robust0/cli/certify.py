"""``robust0 certify``: prove what a classifier withstands, try the proofs, fail where asked to."""

import sys
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robust0.cli import github
from robust0.cli.options import DataDir, Device, Factory, Out, ReportForm, Resume
from robust0.views import output
from robust0.views.output import ReportFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robust0.certifying.job import CertifyJob
    from robust0.decision import Decision
    from robust0.distributed import World
    from robust0.gate.metrics import Floor
    from robust0.proofs import CertificateReport


class CertifyEffort(StrEnum):
    """How long the attacks on certificates search."""

    SMOKE = "smoke"
    QUICK = "quick"
    STANDARD = "standard"
    PAPER = "paper"


class ConditionName(StrEnum):
    """What an ablation certificate compares the answer with."""

    HALF = "half"
    GAP = "gap"


def certify(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="A checkpoint or an id from robust0 zoo list."),
    ] = None,
    factory: Factory = None,
    data: Annotated[
        str | None, typer.Option(help="cifar10, npz:PATH ...; default: the model's own.")
    ] = None,
    data_dir: DataDir = None,
    eps: Annotated[
        str | None,
        typer.Option(metavar="K,K,...", help="Pixels to report; default: 1,2,5,10,20."),
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(min=1, help="How many test images, from the first on; default: 1,000."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Ablation: samples for the bound; default: 10,000.")
    ] = None,
    choose: Annotated[
        int | None,
        typer.Option(min=1, help="Ablation: samples that choose the answer; default: 1,000."),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="Ablation: the chance of a false certificate per image; default: 0.05."),
    ] = None,
    condition: Annotated[
        ConditionName | None,
        typer.Option(help="Ablation: the answer must beat half (default), or the second."),
    ] = None,
    tried: Annotated[
        int | None,
        typer.Option(
            "--try",
            min=0,
            metavar="N",
            help="Attack the certificates of N images, each within its own radius; default: 16.",
        ),
    ] = None,
    every_rule: Annotated[
        bool,
        typer.Option("--every-rule", help="With --try: certificates of the other rules too."),
    ] = False,
    attack: Annotated[
        bool,
        typer.Option("--attack", help="Attack the same classifier too, and show the bracket."),
    ] = False,
    audit: Annotated[
        Path | None,
        typer.Option(metavar="AUDIT_RUN", help="Show the bracket with this audit of it."),
    ] = None,
    effort: Annotated[
        CertifyEffort | None,
        typer.Option(help="Effort of the attacks; default: smoke, with --attack quick."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the attacks; default: 0.")
    ] = None,
    device: Device = "auto",
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images per step; results do not depend on it.")
    ] = None,
    out: Out = None,
    resume: Resume = None,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PERCENT", help="Exit 1 below this; e.g. certified@5=45; repeatable."
        ),
    ] = None,
    form: ReportForm = ReportFormat.AUTO,
) -> None:
    """Prove how many changed pixels each answer withstands: certified accuracy.

    robust0 certify model.safetensors --eps 1,2,5,10,20
    """  # fmt: skip
    from robust0.commands.certify_options import CertifyOptions, check_certify
    from robust0.gate.metrics import parse_floor

    floors = tuple(parse_floor(text) for text in fail_under or ())
    options = CertifyOptions(
        model=model, factory=factory, data=data, data_dir=data_dir, eps=eps, images=images,
        samples=samples, choose=choose, alpha=alpha,
        condition=None if condition is None else condition.value, tried=tried,
        every_rule=every_rule, attack=attack, audit=audit,
        effort=None if effort is None else effort.value, seed=seed, batch_size=batch_size, out=out,
        resume=resume, floors=floors,
    )  # fmt: skip
    check_certify(options, device)
    output.loading("certify")
    from robust0.commands.certify import open_certify
    from robust0.device import resolve_device
    from robust0.distributed import local_device, world

    place = local_device(resolve_device(device))
    with world(place) as group, ExitStack() as stack:
        with output.transfer_bars() as show:
            job, resuming = stack.enter_context(
                open_certify(options, place, group, show, command=("robust0", *sys.argv[1:]))
            )
        report = _certify(job, group, form, resume=resuming)
    if report is not None:
        _conclude(report, floors, job.folder, form)


def _certify(
    job: "CertifyJob", group: "World", form: ReportFormat, *, resume: bool
) -> "CertificateReport | None":
    """Run it; its report, for the leading process of a finished run."""
    from robust0.certify_events import CertifyFinished
    from robust0.certifying.run import certify_run
    from robust0.views.certify import certify_view

    if group.leads:
        for warning in job.warnings:
            output.warn(warning)
        for text in job.notes:
            output.note(text, prose=True)
    report: CertificateReport | None = None
    with certify_view(plain=form is ReportFormat.PLAIN, silent=not group.leads) as view:
        for event in certify_run(job, group, resume=resume):
            view.show(event)
            if isinstance(event, CertifyFinished):
                if event.interrupted is not None:
                    raise typer.Exit(128 + event.interrupted)
                report = event.report
    return report


def _conclude(
    report: "CertificateReport",
    floors: "Sequence[Floor]",
    folder: Path | None,
    form: ReportFormat,
) -> None:
    """Write the report, then say by the exit code what it means."""
    from robust0.gate.certified import certified_decision, certified_floors, refuse_broken

    results = report.results
    decision = certified_decision(results, certified_floors(results, floors)) if floors else None
    _write(report, decision, form, f"{folder}/report.html")
    if form.is_data:
        output.note(f"report: {folder}/report.html, report.md, report.json")
    refuse_broken(results)
    if decision is not None:
        for check in decision.checks:
            output.note(check.message, prose=True)
        output.note(decision.verdict, "bold green" if decision.passed else "bold red", prose=True)
        github.publish(decision, data_on_stdout=form.is_data)
        raise typer.Exit(decision.exit_code)


def _write(
    report: "CertificateReport", decision: "Decision | None", form: ReportFormat, where: str
) -> None:
    from robust0.certifying.finish import certificate_text
    from robust0.views.certificate import show_certificate
    from robust0.writers.certificate_junit import certificate_junit
    from robust0.writers.certificate_markdown import certificate_markdown
    from robust0.writers.markdown import gate_markdown

    match form:
        case ReportFormat.JSON:
            sys.stdout.write(certificate_text(report))
        case ReportFormat.MARKDOWN:
            gate = f"\n{gate_markdown(decision)}" if decision is not None else ""
            sys.stdout.write(certificate_markdown(report) + gate)
        case ReportFormat.JUNIT:
            sys.stdout.write(certificate_junit(report, decision))
        case _:
            show_certificate(report, form, where)
