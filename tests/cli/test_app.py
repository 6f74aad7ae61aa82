"""The shell of the command line: errors, exit codes, narrow and colourless terminals."""

import os
import subprocess
import sys

import pytest

from robust0 import __version__
from robust0.__main__ import main as entrance
from robust0.cli.app import run
from robust0.errors import EvaluationError, RunError, UnreliableError

INHERITED = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR")}


def robust0(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "robust0", *arguments], capture_output=True, text=True, check=False,
        env=INHERITED | environment,
    )  # fmt: skip


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"robust0 {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"], ["harden", "--epoch", "1"], ["harden", "--epochs", "many"],
        ["harden", "--data", "nowhere"], ["data", "info", "nowhere"], ["recipe", "show", "none"],
        ["zoo", "convert", "missing.pth"], ["harden", "--set", "training.epochs"],
        ["harden", "--data", "sample", "--set", "training.epoch=3"],
        ["harden", "--data", "sample", "--model", "resnet1"],
        ["harden", "--resume", "nowhere"], ["harden", "--from", "nowhere.safetensors"],
        ["harden", "--data", "sample", "--device", "abacus"],
    ],
)  # fmt: skip
def test_mistakes_are_one_line_of_message_and_one_of_hint(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    message, hint = said.err.splitlines()
    assert message.startswith("error: ")
    assert hint.startswith("hint: ")
    assert list(tmp_path.iterdir()) == [], "nothing half-written"


@pytest.mark.parametrize(
    ("error", "code"), [(RunError, 2), (EvaluationError, 3), (UnreliableError, 4)]
)
def test_every_kind_of_error_has_its_exit_code(error, code, monkeypatch, capsys):
    def refuse(*_, **__):
        raise error("it did\nnot work", "try\nagain")

    monkeypatch.setattr("robust0.cli.app.app", refuse)
    assert run([]) == code
    assert capsys.readouterr().err == "error: it did not work\nhint: try again\n"


def test_debug_shows_the_traceback_beside_the_message(monkeypatch, capsys):
    monkeypatch.setenv("ROBUST0_DEBUG", "1")
    assert run(["recipe", "show", "none"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "error: there is no recipe named 'none'" in said


@pytest.mark.parametrize(
    ("crash", "message"),
    [
        (ZeroDivisionError("by\nzero"), "robust0 failed: ZeroDivisionError: by zero"),
        (SystemExit(0), "robust0 failed: SystemExit: 0"),
        (RecursionError(), "robust0 failed: RecursionError:"),
        (OSError(28, "No space left on device", "x"), "refused: x: No space left on device"),
    ],
)
@pytest.mark.parametrize("debug", ["0", "1"])
def test_a_crash_is_exit_3_and_two_lines(crash, message, debug, monkeypatch, capsys):
    def fail(*_, **__):
        raise crash

    monkeypatch.setattr("robust0.cli.app.app", fail)
    monkeypatch.setenv("ROBUST0_DEBUG", debug)
    assert run([]) == 3
    *before, error, hint = capsys.readouterr().err.splitlines()
    assert message in error
    assert hint.startswith("hint: ")
    assert bool(before) == (debug == "1")


def test_a_full_disk_behind_stdout_is_exit_3():
    command = f"{sys.executable} -m robust0 recipe list > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_is_130(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("robust0.cli.recipe.table", interrupted)
    assert run(["recipe", "list"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_no_colour_without_a_terminal_or_with_no_color():
    for environment in ({}, {"NO_COLOR": "1"}, {"CI": "true"}):
        done = robust0("recipe", "list", **environment)
        assert done.returncode == 0
        assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("columns", ["20", "40", "100"])
def test_help_and_tables_fit_any_width(columns):
    done = robust0("harden", "--help", COLUMNS=columns, NO_COLOR="1")
    assert done.returncode == 0
    assert max(len(line) for line in done.stdout.splitlines()) <= max(int(columns), 40)
    long = robust0("recipe", "show", "none", COLUMNS=columns)
    assert len(long.stderr.splitlines()) == 2, "an error stays two lines on a narrow terminal"


def test_a_reader_that_leaves_early_is_no_error():
    command = f"{sys.executable} -m robust0 recipe show cifar10 | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_completion_is_offered():
    done = robust0("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "robust0" in done.stdout


def test_ctrl_c_while_the_command_line_loads_is_answered(monkeypatch, capsys):
    class Impatient:
        def find_spec(self, name, path=None, target=None):
            if name == "robust0.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "robust0.cli.app")
    monkeypatch.setattr(sys, "meta_path", [Impatient(), *sys.meta_path])
    with pytest.raises(SystemExit) as end:
        entrance()
    assert end.value.code == 130
    assert capsys.readouterr().err == "error: interrupted\n"
