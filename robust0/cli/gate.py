"""``robust0 gate``: a finished run against floors and a baseline, with an exit code for CI."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robust0.cli import github
from robust0.cli.options import Allow, DataDir, Device, Factory, FailUnder, ReportForm
from robust0.errors import Robust0Error
from robust0.views import output
from robust0.views.output import ReportFormat

if TYPE_CHECKING:
    from robust0.commands.gate import GateOutcome


class PolicyName(StrEnum):
    """When a drop fails the gate."""

    STRICT = "strict"
    SIGNIFICANT = "significant"


def gate(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run directory.")] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE|RUN", help="A baseline.json, or an audit."),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(metavar="POINTS", help="The largest drop that passes; default: 1."),
    ] = None,
    policy: Annotated[
        PolicyName | None,
        typer.Option(help="strict (default): a larger drop fails; significant: if p < 0.05 too."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="saa, worst-case (both by default), clean or an attack; saa@10; for a "
            "certificate certified@5 (default: all asked about), clean or a rule; repeatable."
        ),
    ] = None,
    fail_under: FailUnder = None,
    allow: Allow = None,
    write_baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write RUN's baseline; decide nothing.")
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Try the baseline's attempts on the model first.")
    ] = False,
    fail_on_replay: Annotated[
        bool, typer.Option("--fail-on-replay", help="Let the replay's alarm fail the gate.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="Replay on this model, before any audit; without RUN.")
    ] = None,
    factory: Factory = None,
    device: Device = "auto",
    data_dir: DataDir = None,
    form: ReportForm = ReportFormat.AUTO,
) -> None:
    """Fail when a model got worse: exit 0 passed, 1 failed, 2 not comparable, 4 unreliable.

    Compares two audits image by image, or one audit with floors.
    """
    from robust0.commands.gate import GateOptions, evaluate, make_baseline
    from robust0.gate.baseline import Baseline

    options = GateOptions(
        run=run, baseline=baseline, write_baseline=write_baseline, max_drop=max_drop,
        policy=None if policy is None else policy.value, metrics=tuple(metric or ()),
        floors=tuple(fail_under or ()), allow=tuple(allow or ()), replay=replay,
        fail_on_replay=fail_on_replay, model=model, factory=factory, device=device,
        data_dir=data_dir,
    )  # fmt: skip
    if write_baseline is not None:
        path, made = make_baseline(options)
        kept = f", {len(made.attempts)} attempts" if isinstance(made, Baseline) else ""
        output.note(f"wrote {path}: {len(made.ids):,} images{kept}")
        return
    try:
        with output.transfer_bars() as show:
            outcome = evaluate(options, show)
    except Robust0Error as refusal:
        github.publish_refusal(refusal)
        raise
    _show(outcome, form)
    raise typer.Exit(outcome.decision.exit_code)


def _show(outcome: "GateOutcome", form: ReportFormat) -> None:
    from robust0.views.gate import show_gate
    from robust0.writers.junit import gate_junit
    from robust0.writers.markdown import gate_markdown

    for note in outcome.notes:
        output.note(note, prose=True)
    for warning in outcome.warnings:
        output.warn(warning)
    if form is ReportFormat.MARKDOWN:
        sys.stdout.write(gate_markdown(outcome.decision))
    elif form is ReportFormat.JUNIT:
        sys.stdout.write(gate_junit(outcome.decision, outcome.report))
    else:
        show_gate(outcome.decision, form)
    github.publish(outcome.decision, data_on_stdout=form.is_data)
