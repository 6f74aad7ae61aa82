"""What people read of a certificate, written from its run alone."""

from pathlib import Path

from robust0.certifying.finish import REPORT
from robust0.certifying.rundata import CertificateRun, read_certificate_run, rebuild_certificate
from robust0.errors import RunError
from robust0.files import write_text
from robust0.proofs import CertificateReport
from robust0.runs.folder import owned
from robust0.writers.artefacts import HTML, JUNIT, MARKDOWN
from robust0.writers.bracket_plot import draw_bracket
from robust0.writers.certificate_html import render_certificate
from robust0.writers.certificate_junit import certificate_junit
from robust0.writers.certificate_markdown import certificate_markdown

PICTURES = ("bracket.png", "bracket.svg")


def write_certificate_reports(folder: Path) -> list[Path]:
    """Write every artefact of a finished run, each whole or not at all; their paths."""
    run = read_certificate_run(folder)
    texts = {
        HTML: render_certificate(run),
        MARKDOWN: certificate_markdown(run.report),
        JUNIT: certificate_junit(run.report),
    }
    try:
        for name, text in texts.items():
            write_text(folder / name, text)
        pictures = _pictures(run)
    except OSError as problem:
        raise RunError(
            f"cannot write the reports of {folder}: {problem.strerror}",
            f"make room, then rebuild them with robust0 report {folder}",
        ) from problem
    return [*(folder / name for name in texts), *pictures]


def rebuild_certificate_reports(folder: Path) -> tuple[CertificateReport, list[Path]]:
    """Fold report.json anew from the proofs, then write the rest; the report and all paths."""
    with owned(folder):
        report = rebuild_certificate(folder)
        return report, [folder / REPORT, *write_certificate_reports(folder)]


def _pictures(run: CertificateRun) -> list[Path]:
    if run.report.results.bracket is None:
        return []
    paths = [run.folder / name for name in PICTURES]
    for path in paths:
        draw_bracket(run.report.results, path)
    return paths
