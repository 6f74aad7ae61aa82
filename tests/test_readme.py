"""The commands of README and docs: every one parses, and README's run as they are written.

Commands that take longer than a CI job may are run with ``--dry-run`` at their end, which resolves,
opens and tries everything but the search or the training itself.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from robust0.cli.app import app
from robust0.resources import shipped

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FACTORY = """
from torch import nn


def make():
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(3 * 7 * 7, 4))
"""
# What these ask for, beside the few commands that end within two minutes.
QUICK = ("--images 16", "--images 32", "--data sample --epochs 1", "--dry-run", "zoo ", "doctor")


def text_of(page):
    return re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))  # joins continued lines


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", text_of(page), re.DOTALL)


def commands(page):
    lines = [line for block in blocks(page, "bash") for line in block.splitlines()]
    shown = [line.split("  #")[0].strip() for line in lines]
    indented = re.findall(r"^    (robust0 .*)$", text_of(page), re.MULTILINE)
    return [line for line in [*shown, *indented] if line.startswith("robust0 ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_has_options_that_exist(page):
    import typer
    from typer.main import get_command

    for line in commands(page):
        words = shlex.split(line, comments=True)[1:]
        command, context = get_command(app), None
        while hasattr(command, "commands"):
            context = typer.Context(command, info_name=command.name, parent=context)
            command = command.commands[words.pop(0)]
        known = {name for option in command.params for name in option.opts}
        given = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert given <= known | {"--help"}, line


def test_readme_is_short_enough_to_read():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 260


def test_every_page_that_is_linked_exists():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+?)\)", text):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with what the README's commands name."""
    folder = tmp_path_factory.mktemp("readme")
    weights = shipped("model_zoo") / "cifar10-w16-e10-fast-ls-l0.safetensors"
    shutil.copy(weights, folder / "model.safetensors")
    package = folder / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "nets.py").write_text(FACTORY)
    draws = np.random.default_rng(0)
    np.savez(
        folder / "my.npz",
        images=draws.integers(0, 256, (64, 28, 28, 3), dtype=np.uint8),
        labels=np.arange(64) % 4,
    )
    save_file(
        {"2.weight": torch.randn(4, 147) / 12, "2.bias": torch.zeros(4)},
        folder / "weights.safetensors",
    )
    for label in range(10):
        place = folder / "photos" / "val" / f"class{label}"
        place.mkdir(parents=True)
        picture = draws.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(picture).save(place / "one.png")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("line", commands(ROOT / "README.md"))
def test_a_command_of_the_readme_works_as_written(line, workplace):
    words = shlex.split(line, comments=True)
    if not any(word in line for word in QUICK) and words[1] in ("audit", "harden"):
        words.append("--dry-run")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{workplace}"}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=workplace, env=environment, text=True,
        capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_python_of_the_readme_runs(workplace):
    (code,) = (block for block in blocks(ROOT / "README.md", "python") if "robust0.audit(" in block)
    setup = (
        "import torch\nfrom my_package.nets import make\n"
        "network, images, labels = make(), torch.rand(8, 3, 28, 28), torch.arange(8) % 4\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{workplace}"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", setup + code], cwd=workplace, env=environment,
        text=True, capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (workplace / "audit" / "report.html").is_file()


@pytest.mark.slow
def test_the_script_of_the_action_audits_and_gates(workplace, tmp_path):
    """A first run with a floor, its baseline, then a gate against it."""
    program = tmp_path / "robust0"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m robust0 "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{workplace}",
        "MODEL": "weights.safetensors", "FACTORY": "my_package.nets:make", "DATA": "npz:my.npz",
        "EPS": "3", "IMAGES": "32", "EFFORT": "smoke", "MAX_DROP": "1.0", "POLICY": "strict",
        "FAIL_UNDER": "clean=1.5%",
    }  # fmt: skip

    def act(**more):
        shutil.rmtree(workplace / "robust0-audit", ignore_errors=True)
        script = ROOT / ".github" / "audit.sh"
        return subprocess.run(
            ["bash", script], cwd=workplace, env={**environment, **more}, text=True,
            capture_output=True, check=False, timeout=300,
        )  # fmt: skip

    first = act()
    assert first.returncode == 0, first.stderr
    made = subprocess.run(
        [program, "gate", "robust0-audit", "--write-baseline", "baseline.json"], cwd=workplace,
        env=environment, check=False,
    )  # fmt: skip
    assert made.returncode == 0
    assert act(BASELINE="baseline.json").returncode == 0
    assert act(FAIL_UNDER="clean=99.9").returncode == 1
