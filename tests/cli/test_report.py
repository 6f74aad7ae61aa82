import json
import re

import pytest
import typer
from typer.testing import CliRunner

from robust0.cli.report import report
from robust0.errors import RunError
from robust0.records import Report
from tests.auditing.factory_report import make_report, make_run

app = typer.Typer()
app.command()(report)


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "run")


def run(*arguments, **options):
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False, **options)
    assert result.exit_code == 0, result.output
    return result


def test_everything_is_rebuilt_from_the_run_alone(folder):
    before = (folder / "report.json").read_bytes()
    (folder / "report.json").write_bytes(before)
    result = run(folder)
    for name in ("report.json", "report.html", "report.md", "report.junit.xml"):
        assert (folder / name).is_file()
        assert name in result.stderr
    assert (folder / "report.json").read_bytes() == before
    assert not list(folder.glob(".*.tmp"))


def test_a_lost_report_is_folded_anew(folder):
    document = json.loads((folder / "report.json").read_text())
    (folder / "report.json").unlink()
    run(folder)
    assert json.loads((folder / "report.json").read_text())["results"] == document["results"]


@pytest.mark.parametrize(
    ("form", "begins"),
    [("plain", "attacks"), ("auto", "attacks"), ("rich", "attacks"), ("tsv", "kind\t"),
     ("json", "{"),
     ("markdown", "## robust0 audit"), ("junit", "<?xml")],
)  # fmt: skip
def test_forms(folder, form, begins):
    assert run(folder, "--output-format", form).stdout.startswith(begins)


def test_json_is_the_report(folder):
    text = run(folder, "--output-format", "json").stdout
    assert Report.model_validate_json(text) == make_report()


@pytest.mark.parametrize("columns", ["100", "60", "40"])
def test_rich_keeps_to_the_width(folder, columns):
    text = run(folder, "--output-format", "rich", env={"COLUMNS": columns}).stdout
    lines = [line for line in text.splitlines() if not line.startswith("all of it: ")]
    assert len(text.splitlines()) - len(lines) == 1  # a path stays whole, to be copied
    assert max(map(len, lines)) <= int(columns)


def test_refusals(folder, tmp_path):
    with pytest.raises(RunError, match="no run directory"):
        run(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="holds no audit"):
        run(tmp_path / "empty")
    assert not list((tmp_path / "empty").iterdir())
    lines = (folder / "verdicts.jsonl").read_text().splitlines(keepends=True)
    (folder / "verdicts.jsonl").write_text("".join(lines[:-5]))
    (folder / "report.json").unlink()
    with pytest.raises(RunError, match=re.escape("is not finished")):
        run(folder)


def test_a_run_in_use_is_left_alone(folder):
    from robust0.runs.folder import owned

    with owned(folder), pytest.raises(RunError, match="another process"):
        run(folder)
