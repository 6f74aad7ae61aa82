"""``robust0 report``: every report of a finished run, rebuilt from its directory alone."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from robust0.views import output
from robust0.views.output import ReportFormat


def report(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run directory of robust0 audit or certify.")
    ],
    form: Annotated[
        ReportFormat, typer.Option("--output-format", help="How the report is printed.")
    ] = ReportFormat.AUTO,
) -> None:
    """Rebuild report.json, report.html, report.md and JUnit of a run, and print the report.

    Needs neither the model nor the dataset.
    """
    from robust0.certifying.facts import is_certificate
    from robust0.runs.folder import run_folder
    from robust0.writers.artefacts import JUNIT, MARKDOWN

    run = run_folder(run)
    show, paths = _certificate(run) if is_certificate(run) else _audit(run)
    if form is ReportFormat.MARKDOWN:
        sys.stdout.write((run / MARKDOWN).read_text(encoding="utf-8"))
    elif form is ReportFormat.JUNIT:
        sys.stdout.write((run / JUNIT).read_text(encoding="utf-8"))
    else:
        show(form)
    for path in paths:
        output.note(f"wrote {path}")


def _audit(run: Path) -> tuple[Callable[[ReportFormat], None], list[Path]]:
    from robust0.views.report import show_report
    from robust0.writers.artefacts import rebuild

    made, paths = rebuild(run)
    return lambda form: show_report(made, form, str(run / "report.html")), paths


def _certificate(run: Path) -> tuple[Callable[[ReportFormat], None], list[Path]]:
    from robust0.views.certificate import show_certificate
    from robust0.writers.certificate import rebuild_certificate_reports

    made, paths = rebuild_certificate_reports(run)
    return lambda form: show_certificate(made, form, str(run / "report.html")), paths
