"""``robust0 schema``: the JSON schemas of the files that other programs read."""

import json
import sys
from enum import StrEnum
from typing import Annotated

import typer


class Document(StrEnum):
    """A file of robust0."""

    REPORT = "report"
    VERDICT = "verdict"
    BASELINE = "baseline"


def schema(
    document: Annotated[
        Document,
        typer.Argument(help="report.json, a line of verdicts.jsonl, or baseline.json."),
    ] = Document.REPORT,
) -> None:
    """Print the JSON schema of a report, a verdict or a baseline."""
    from robust0.gate.baseline import Baseline
    from robust0.records import Frozen, Report, Verdict

    models: dict[Document, type[Frozen]] = {
        Document.REPORT: Report,
        Document.VERDICT: Verdict,
        Document.BASELINE: Baseline,
    }
    text = json.dumps(models[document].model_json_schema(by_alias=True), indent=2)
    sys.stdout.write(text + "\n")
