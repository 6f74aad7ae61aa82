"""Help, versions, loudness, other tools' words, completion and the doctor."""

import json
import re
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
import typer

from robust0 import __version__
from robust0.attacks import ATTACKS
from robust0.attacks.sparse_rs import SparseRS
from robust0.cli import completions
from robust0.cli.app import app, run
from robust0.cli.helping import OTHER_WORDS, PANELS
from robust0.commands import doctor
from robust0.views.output import Verbosity


def every_command(command=None, path=()):
    command = command or typer.main.get_command(app)
    for name, inner in getattr(command, "commands", {}).items():
        if hasattr(inner, "commands"):
            yield from every_command(inner, (*path, name))
        else:
            yield (*path, name), inner


@pytest.mark.parametrize(("path", "command"), list(every_command()))
def test_every_help_has_examples_that_parse_and_its_options_in_groups(path, command, capsys):
    assert run([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Examples:" in shown
    lines = [line.strip() for line in shown.splitlines() if line.strip().startswith("robust0 ")]
    flat = " ".join(shown.split())
    assert any(line.startswith(f"robust0 {' '.join(path)}") for line in lines), flat
    options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    for word in re.findall(r"(?<= )--?[a-z][a-z-]*", " ".join(lines)):
        assert word in options | {"-v"}, word
    if len(options) > 12:
        assert len({PANELS.get(param.name) for param in command.params}) > 2


def test_versions_and_words_of_other_tools(capsys):
    assert run(["-V"]) == 0
    assert capsys.readouterr().out == f"robust0 {__version__}\n"
    for word, meant in (("train", "harden"), ("attack", "audit"), ("eval", "audit")):
        assert run([word]) == 2
        assert f"hint: robust0 {meant} does that" in capsys.readouterr().err
    known = {path for path, _ in every_command()}
    assert all(tuple(word.split()) in known for word in OTHER_WORDS.values() if word != "-V")


def test_quiet_leaves_data_and_refusals(capsys):
    assert run(["data", "list"]) == 0
    assert "also: folder:PATH" in capsys.readouterr().err
    for words in (["-q", "data", "list"], ["data", "list", "--quiet"]):
        assert run(words) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        assert "cifar10" in captured.out
    assert run(["-q", "nonsense"]) == 2
    assert "error:" in capsys.readouterr().err
    assert run(["data", "list", "-v"]) == 0
    assert Verbosity.verbose
    assert run(["data", "list"]) == 0
    assert not Verbosity.verbose


def test_an_installed_attack_is_listed_in_help(capsys, monkeypatch):
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Strange(SparseRS):
        kind: ClassVar[str] = "strange-attack"
        configured: ClassVar = (SimpleNamespace(name="strange-attack", params={}, rank=9),)

    members = dict(ATTACKS.members())
    monkeypatch.setattr(ATTACKS, "_members", members | {"strange-attack": Strange})
    assert run(["audit", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Installed attacks: strange-attack (tests)" in shown
    assert "Attacks: sparse-pgd-p" in shown
    assert run(["harden", "--help"]) == 0
    assert "Methods: fast-ls-l0" in " ".join(capsys.readouterr().out.split())


def test_the_shell_completes_names():
    assert "cifar10-w16-e14-fast-ls-l0" in completions.zoo_ids("cifar10")
    assert completions.attacks("saa,sparse-r") == ["saa,sparse-rs"]
    assert completions.datasets("cifar") == ["cifar10", "cifar100"]
    assert "strades-t+sn" in completions.methods("strades")
    assert completions.networks("preact_resnet18_w1") == ["preact_resnet18_w16"]
    assert "convnext_tiny" in completions.networks("convnext_t")
    assert "quick" in completions.recipes("qu")


def test_the_shell_is_answered_with_words_alone(monkeypatch, capsys):
    monkeypatch.setenv("_ROBUST0_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "robust0 compare cifar10-w16-e14")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert run([]) == 0
    said = capsys.readouterr()
    assert said.out.split() == ["cifar10-w16-e14-fast-ls-l0"]
    assert said.err == ""


def test_the_doctor_names_what_there_is(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("ROBUST0_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor, "HOSTS", {"nowhere": "http://127.0.0.1:9"})
    monkeypatch.delenv("ROBUST0_OFFLINE", raising=False)
    assert run(["doctor", "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["robust0"].startswith(__version__)
    assert found["python"].endswith(sys.executable)
    assert set(doctor.LIBRARIES) <= set(found)
    assert "writable" in found["cache"]
    assert found["nowhere"].startswith("not reachable")
    assert found["search precision"] in {"bf16", "fp32"}
    assert run(["doctor", "--no-network"]) == 0
    assert "not asked" in capsys.readouterr().out
