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

import pytest

from robust0.cli.app import app
from tests.docs.pages import PAGES, ROOT, blocks, commands

# What these ask for, beside the few commands that end within two minutes.
QUICK = ("--images 16", "--images 32", "--data sample --epochs 1", "--dry-run", "zoo ", "doctor")


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
