"""What people read of a run, written from the run alone: report.html, report.md, JUnit XML."""

from pathlib import Path

from robust0.auditing.facts import read_run_file as read_info
from robust0.auditing.finish import rebuild_report
from robust0.auditing.proof import REPORT
from robust0.auditing.rundata import read_report, read_run
from robust0.errors import RunError
from robust0.files import write_text
from robust0.records import Report
from robust0.runs.folder import owned
from robust0.writers.html import render
from robust0.writers.junit import report_junit
from robust0.writers.markdown import report_markdown

HTML = "report.html"
MARKDOWN = "report.md"
JUNIT = "report.junit.xml"


def write_all(run_dir: Path) -> list[Path]:
    """Write every artefact of a finished run, each whole or not at all; their paths."""
    run = read_run(run_dir)
    texts = {
        HTML: render(run),
        MARKDOWN: report_markdown(run.report),
        JUNIT: report_junit(run.report),
    }
    try:
        for name, text in texts.items():
            write_text(run_dir / name, text)
    except OSError as problem:
        raise RunError(
            f"cannot write the reports of {run_dir}: {problem.strerror}",
            f"make room, then rebuild them with robust0 report {run_dir}",
        ) from problem
    return [run_dir / name for name in texts]


def rebuild(run_dir: Path) -> tuple[Report, list[Path]]:
    """Fold report.json anew from the verdicts, then write the rest; the report and all paths."""
    if (run_dir / REPORT).exists() or not run_dir.is_dir():
        read_report(run_dir)  # refuses what is damaged or not there
    read_info(run_dir)  # a folder without a run is left alone: no lock in it
    with owned(run_dir):
        report = rebuild_report(run_dir)
        return report, [run_dir / REPORT, *write_all(run_dir)]
