"""docs/compare.md: its commands and its Python run as written, and print its numbers."""

import shlex

import matplotlib as mpl
import pytest

from robust0.cli.app import run
from tests.docs.pages import ROOT, blocks, commands

PAGE = ROOT / "docs" / "compare.md"


@pytest.mark.slow
def test_commands_and_python_run_and_the_table_is_what_they_print(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = commands(PAGE)
    assert len(lines) == 3
    shown = ""
    for line in lines:
        assert run(shlex.split(line, comments=True)[1:]) == 0, line
        shown += capsys.readouterr().out
    assert (tmp_path / "comparison" / "compare.html").is_file()
    (table,) = (p for p in PAGE.read_text("utf-8").split("```") if p.startswith("\n20 pixels"))
    for line in table.strip().splitlines():
        assert line in shown
    mpl.use("agg")
    (code,) = blocks(PAGE, "python")
    exec(compile(code, str(PAGE), "exec"), {})
    assert "sAA at 20 pixels" in capsys.readouterr().out
