"""Hostile and broken inputs, a row each: two lines and exit 2 or 3, no traceback and no hang."""

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from robust0.cli.app import run
from robust0.rng import seeded

SECRET = "hunter2: [token"
MODULE = """
from torch import nn


def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(90, 3))
"""
MODEL = ("line.safetensors", "--factory", "hostile_factory:make")
SMALL = ("--data", "npz:line.npz", "--eps", "4", "--effort", "smoke", "--attacks", "sparse-rs",
         "--batch-size", "16")  # fmt: skip
AUDIT = ("audit", *MODEL, *SMALL)
RESUME = ("audit", *MODEL[1:], "--resume", "run")
ESC = "\x1b[31mred"
DEEP = {
    "arch": "vit_tiny_patch16_224",
    "arch_args": json.dumps({"depth": 4096, "img_size": 32, "patch_size": 4, "num_classes": 10}),
    "robust0": json.dumps({
        "schema": 1, "classes": 10, "input_size": [3, 32, 32], "mean": [0.0] * 3,
        "std": [1.0] * 3, "dataset": "sample",
    }),
}  # fmt: skip


def settle(folder):
    with seeded("hostile"):
        network = nn.Sequential(nn.Flatten(), nn.Linear(90, 3))
        pixels = torch.randint(0, 256, (40, 3, 6, 5), dtype=torch.uint8)
    labels = network(pixels / 255).argmax(dim=1).numpy()
    save_file(network.state_dict(), folder / "line.safetensors")
    save_file({"weight": torch.zeros(1)}, folder / "deep.safetensors", metadata=DEEP)
    np.savez(folder / "line.npz", images=pixels.permute(0, 2, 3, 1).numpy(), labels=labels)
    (folder / "hostile_factory.py").write_text(MODULE)
    project = folder / "project"
    project.mkdir()
    (folder / "secret.yaml").write_text(SECRET)
    for name in ("pipe.yaml", "pipe.json", "pipe.npz", "pipe.safetensors"):
        os.mkfifo(project / name)
    for name, base in (
        ("fifo", "pipe.yaml"), ("zero", "/dev/zero"), ("outside", "../secret.yaml"),
        ("absolute", str(folder / "secret.yaml")), ("nouser", "~nouser/secret.yaml"),
    ):  # fmt: skip
        (project / f"{name}.yaml").write_text(f"schema: 1\nextends: {base}\n")
    (project / "link.yaml").symlink_to("../secret.yaml")
    (project / "linked.yaml").write_text("schema: 1\nextends: link.yaml\n")


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    """Files and one finished run."""
    folder = tmp_path_factory.mktemp("ground")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROBUST0_CACHE", str(folder / "cache"))
        patch.setenv("ROBUST0_OFFLINE", "1")
        patch.setattr("robust0.auditing.estimate.SECONDS", 0.0)
        patch.syspath_prepend(folder)
        settle(folder)
        patch.chdir(folder)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        assert run([*AUDIT, "-o", "run"]) == 0
        yield folder
        torch.set_num_threads(threads)


@pytest.fixture
def place(ground, tmp_path, monkeypatch):
    """A copy of the run, in a project folder that commands work in; a hang ends the test."""
    shutil.copytree(ground / "run", tmp_path / "run")
    for name in ("line.safetensors", "line.npz", "deep.safetensors"):
        shutil.copy(ground / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    signal.alarm(60)
    yield tmp_path
    signal.alarm(0)


def refused(capsys, code=2):
    """The two lines of a refusal, without anything that steers a terminal."""
    lines = capsys.readouterr().err.splitlines()
    assert "\x1b" not in "".join(lines)
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1
    assert lines[-1].startswith("hint: ")
    assert "robust0 failed" not in errors[0], f"only the last handler caught it: {errors}"
    return errors[0]


WORDS = {
    "home of nobody: model": (["audit", "~nouser/x.safetensors"], "no file"),
    "home of nobody: npz": (["audit", *MODEL, "--data", "npz:~nouser/x"], "there is no file"),
    "home of nobody: folder": (["audit", *MODEL, "--data", "folder:~nouser"], "no folder"),
    "home of nobody: data": ([*AUDIT, "--data-dir", "~nouser"], "no folder"),
    "home of nobody: recipe": (["harden", "--recipe", "~nouser/x.yaml"], "does not exist"),
    "home of nobody: zoo": (["zoo", "list", "--zoo", "~nouser"], "there is no zoo"),
    "home of nobody: weights": (["audit", "local-dir:~nouser"], "cannot read"),
    "an empty run": ([*AUDIT, "-o", ""], "the path is empty"),
    "an empty run to resume": (["harden", "--resume", " "], "the path is empty"),
    "empty data": ([*AUDIT, "--data-dir", ""], "the path is empty"),
    "a setting that nothing reads": ([*AUDIT, "--set", "model.name=resnet18"], "changes nothing"),
    "another network than the factory's": (
        ["harden", "--factory", MODEL[2], "--set", "model.name=resnet18"], "changes nothing"),
    "escapes in a key": ([*AUDIT, "--set", f"audit.{ESC}=1"], "unknown key"),
    "escapes in an override": ([*AUDIT, "--set", ESC], "key=value"),
    "escapes in a path": (["audit", f"{ESC}.safetensors"], "red"),
    "escapes in a run": (["report", ESC], "there is no run directory"),
    "escapes in a method": (["harden", "--method", ESC, "--data", "sample"], "no training method"),
    "escapes in a metric": (["gate", "run", "--fail-under", f"{ESC}=3"], "red"),
    "half an IPv6 address": (["zoo", "list", "--zoo", "http://[::1"], "not the address"),
    "a port that is no number": (["zoo", "list", "--zoo", "https://host:x/"], "not the address"),
    "letters beyond ASCII": (["zoo", "list", "--zoo", "https://exämple.org"], "not the address"),
    "a network without end": (["audit", "deep.safetensors"], "asks for 4096 layers"),
}  # fmt: skip
PIPES = {
    "recipe": (["harden", "--recipe", "{}/pipe.yaml"], "pipe or a device"),
    "device as recipe": (["harden", "--recipe", "/dev/zero.yaml"], "does not exist"),
    "extends a pipe": (["harden", "--recipe", "{}/fifo.yaml"], "pipe or a device"),
    "extends a device": (["harden", "--recipe", "{}/zero.yaml"], "of its own project"),
    "extends another folder's file": (["harden", "--recipe", "{}/outside.yaml"], "own project"),
    "extends a file by its whole path": (["harden", "--recipe", "{}/absolute.yaml"], "own project"),
    "extends a link": (["harden", "--recipe", "{}/linked.yaml"], "own project"),
    "extends the home of nobody": (["harden", "--recipe", "{}/nouser.yaml"], "does not exist"),
    "baseline": (["gate", "run", "--baseline", "{}/pipe.json"], "pipe or a device"),
    "npz": (["audit", *MODEL, "--data", "npz:{}/pipe.npz"], "pipe or a device"),
    "model": (["audit", "{}/pipe.safetensors"], "not a regular file"),
}  # fmt: skip


@pytest.mark.parametrize("case", WORDS)
def test_words(case, place, capsys):
    words, expected = WORDS[case]
    assert run(list(words)) == 2
    assert expected in refused(capsys)
    assert not (place / "runs").exists()


@pytest.mark.parametrize("case", PIPES)
def test_pipes_devices_and_files_of_others(case, place, ground, capsys):
    words, expected = PIPES[case]
    assert run([word.format(ground / "project") for word in words]) == 2
    message = refused(capsys)
    assert expected in message
    assert "hunter2" not in message


def test_the_home_of_nobody_as_a_cache(place, monkeypatch, capsys):
    monkeypatch.setenv("ROBUST0_CACHE", "~nouser/cache")
    monkeypatch.setenv("ROBUST0_CONFIG", "~nouser/config")
    assert run(["audit", "cifar10-w8-e4-standard", "--data", "cifar10", "--eps", "4"]) == 2
    assert "cifar10" in refused(capsys)


DAMAGE = {
    "clock that is no record": ("clock.jsonl", b"3\n"),
    "clock without times": ("clock.jsonl", b'{"attack": 1}\n'),
    "clock that is no text": ("clock.jsonl", b"\xff\xfe\n\n"),
    "checks cut off": ("checks.json", b'{"flags": ['),
    "checks of another kind": ("checks.json", b"[]"),
    "verdicts of another kind": ("verdicts.jsonl", b"[1]\n"),
    "verdicts too deep": ("verdicts.jsonl", b"[" * 100_000 + b"\n"),
    "attempts cut off": ("attempts.safetensors", b"\x08"),
    "a run that is none": ("run.json", b"{}"),
    "a recipe that is none": ("recipe.yaml", b"schema: 1\nx: ["),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_run_is_refused_before_it_goes_on(case, place, monkeypatch, capsys):
    name, content = DAMAGE[case]
    (place / "run" / "parts").mkdir()
    (place / "run" / name).write_bytes(content)
    monkeypatch.setattr("robust0.auditing.run.run_audit", None)  # nothing is attacked
    assert run(list(RESUME)) == 2
    refused(capsys)


@pytest.mark.parametrize(
    "command", [["report", "run"], ["gate", "run", "--fail-under", "clean=1%"]]
)
@pytest.mark.parametrize("name", ["checks.json", "verdicts.jsonl", "report.json", "run.json"])
@pytest.mark.parametrize("content", [b"\xff", b"[1]\n[2]\n", b"{" * 9000])
def test_a_damaged_run_decides_nothing(command, name, content, place, capsys):
    (place / "run" / name).write_bytes(content)
    if command[0] == "gate" and name == "checks.json":
        pytest.skip("a gate reads the flags of the report")
    assert run(command) == 2
    refused(capsys)


def test_images_that_do_not_fit_into_memory(place, monkeypatch, capsys):
    monkeypatch.setattr("robust0.data.arrays.available_memory", lambda: 1000)
    assert run([*AUDIT, "-o", "new"]) == 2
    assert "do not fit into the free memory" in refused(capsys)
    assert not Path("new").exists()


def test_escapes_in_the_path_of_a_run_do_not_reach_the_terminal(place, capsys):
    assert run([*AUDIT, "-o", ESC]) == 0
    said = capsys.readouterr()
    assert "\x1b" not in said.err + said.out
    assert "[31mred" in said.err
