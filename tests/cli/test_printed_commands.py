"""Every command that robust0 prints is one that works as printed."""

import ast
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
import typer

import robust0
from robust0.cli.app import app, run

PACKAGE = Path(robust0.__file__).parent
NAMES = "audit|certify|compare|data|doctor|gate|harden|recipe|report|schema|zoo"
SPOKEN = re.compile(
    rf"robust0 (?:{NAMES})(?: [a-z]\w+)?(?:(?: -{{1,2}}[a-z][\w-]*)| [A-Z]\w*| \{{\}})*"
)
FACTORY = """
from torch import nn

def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 6 * 5, 3))
"""  # fmt: skip


def literals(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def spoken():
    paths = sorted(PACKAGE.rglob("*.py"))
    return sorted({m[0] for p in paths for text in literals(p) for m in SPOKEN.finditer(text)})


def known(words):
    """The command that these words name, and the words after its name."""
    command = typer.main.get_command(app)
    while words and hasattr(command, "commands") and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize("text", spoken())
def test_commands_and_options_in_messages_exist(text):
    command, rest = known(text.split()[1:])
    options = {n for param in command.params for n in (*param.opts, *param.secondary_opts)}
    said = [word for word in rest if word.startswith("-")]
    assert set(said) <= options, command.name
    if hasattr(command, "commands"):  # a group alone may be named, but not a command it lacks
        assert not [word for word in rest if word.islower() and not word.startswith("-")] or (
            text.split()[2] in {"and", "for", "has", "is", "takes", "with"}
        )


def test_messages_were_found():
    assert "robust0 zoo list" in spoken()
    assert any(text.startswith("robust0 audit --resume") for text in spoken())


@pytest.fixture
def place(tmp_path, monkeypatch):
    folder = tmp_path / "a place with spaces"
    folder.mkdir()
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (96, 6, 5, 3), dtype=np.uint8)
    np.savez(folder / "my data.npz", images=images, labels=images.argmax(axis=3).sum((1, 2)) % 3)
    (folder / "my_factory.py").write_text(FACTORY)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("ROBUST0_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("robust0.auditing.estimate.SECONDS", 0.02)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield folder
    torch.set_num_threads(threads)


def printed(text, before):
    line = next(line for line in text.splitlines() if before in line)
    words = shlex.split(line.partition(before)[2])
    assert words[0] == "robust0"
    return words[1:]


def test_what_harden_and_audit_print_works_as_printed(place, capfd):
    few = ["--set", "training.threat.pixels=4", "--set", "threat.pixels=4", "--set",
           "training.probe.forwards=10", "--epochs", "1", "--batch-size", "16"]  # fmt: skip
    made = run(["harden", "--factory", "my_factory:make", "--data", "npz:my data.npz", *few,
                "-o", "my run"])  # fmt: skip
    said = capfd.readouterr().err
    assert made == 0, said
    following = printed(said, "next: ")
    assert following == ["audit", "my run", "--factory", "my_factory:make"]
    # A gate wants budget and data said; the rest is for the test's sake.
    said = ["--eps", "4", "--data", "npz:my data.npz"]
    short = [*said, "--effort", "smoke", "--attacks", "saa", "-o", "my audit"]
    assert run([*following, *short]) == 0, capfd.readouterr().err
    said = capfd.readouterr().err
    assert "96 images of 6x5" in said
    report = Path(place / "my audit" / "report.json")
    assert run(["gate", "my audit", "--baseline", "my audit"]) == 0
    assert run(["gate", "my audit/report.json", "--baseline", "my audit"]) == 0
    assert run(["report", "my audit/report.json"]) == 0
    assert report.is_file()
    network = robust0.load("my run", factory="my_factory:make")
    again = robust0.load(Path("my run"), factory=__import__("my_factory").make)
    images = torch.rand(4, 3, 6, 5)
    assert torch.equal(network(images), again(images))
    assert not network.training


def test_an_audit_is_not_a_model_and_an_architecture_is_not_a_checkpoint(place, capfd):
    audit = place / "audited"
    audit.mkdir()
    (audit / "verdicts.jsonl").touch()
    assert run(["audit", "audited"]) == 2
    assert "is the run of an audit, not a model" in capfd.readouterr().err
    assert run(["audit", "resnet18"]) == 2
    assert "name of an architecture" in capfd.readouterr().err
