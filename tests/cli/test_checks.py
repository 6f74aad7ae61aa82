"""recipe check and zoo check, and the hooks that call them, run as they are written."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from robust0.cli.app import run
from tests.zoo import conftest as zoo_parts
from tests.zoo.conftest import NAME

ROOT = Path(__file__).parents[2]
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
made, zoo, place = zoo_parts.made, zoo_parts.zoo, zoo_parts.place
HEAD = "schema: 1\nextends: cifar10\n"


def checked(capsys, *words) -> tuple[int, list[str]]:
    code = run([str(word) for word in words])
    return code, capsys.readouterr().out.splitlines()


def test_what_is_shipped_has_no_faults(capsys):
    assert checked(capsys, "recipe", "check", *sorted((ROOT / "recipes").glob("*.yaml"))) == (0, [])
    assert checked(capsys, "zoo", "check", *sorted((ROOT / "model_zoo").glob("*.yaml"))) == (0, [])


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (
            "training: {metod: x}\naudit: {efort: quick}\nfamilies: {a*: {dataset: {}}}\n",
            ["3: unknown key training.metod", "4: unknown key audit.efort", "families.a*.dataset"],
        ),
        ("training: {epochs: -3, batch_size: 0}\n", ["3: training.epochs", "training.batch_size"]),
        ("audit: {effort: slow}\n", ["3: there is no audit effort 'slow'"]),
        ("training: {method: fast}\n", ["fast"]),
        (
            "dataset: {name: cifar11}\nmodel: {name: resnet19}\n",
            ["dataset.name: unknown dataset 'cifar11'", "model.name: timm knows no network"],
        ),
        ("training: [\n", ["YAML"]),
    ],
)  # fmt: skip
def test_every_fault_of_a_recipe_is_a_line(tmp_path, capsys, text, faults):
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + text)
    code, lines = checked(capsys, "recipe", "check", path)
    assert code == 2
    assert len(lines) == len(faults)
    for line, fault in zip(lines, faults, strict=True):
        assert line.startswith(f"{path}:")
        assert fault in line


def test_a_card_is_checked_with_its_files(zoo, capsys):
    card, index = zoo / f"{NAME}.yaml", zoo / "index.yaml"
    assert checked(capsys, "zoo", "check", card, index) == (0, [])
    (zoo / f"{NAME}.verdicts.json").write_text("{}")
    (zoo / f"{NAME}.safetensors").unlink()
    card.write_text(card.read_text().replace("effort: quick", "effort: paper"))
    shutil.copy(card, zoo / "other.yaml")
    code, lines = checked(capsys, "zoo", "check", card, zoo / "other.yaml", index)
    assert code == 2
    wanted = (
        rf"{card}: verdicts: .* has another sha256",
        rf"{card}: source: there is no {NAME}.safetensors",
        rf"{card}: audit.effort: 'quick' in the report, 'paper' here",
        rf"{zoo}/other.yaml is the card of {NAME}",
        rf"{index}: cards: other.yaml is not listed",
        rf"{index}: cards.{NAME}: {NAME}.yaml has changed since",
    )
    assert len(lines) == len(wanted)
    for line, pattern in zip(sorted(lines), sorted(wanted), strict=True):
        assert re.match(pattern, line)


def test_every_fault_of_a_cards_form_is_a_line(zoo, capsys):
    card = zoo / f"{NAME}.yaml"
    card.write_text(
        card.read_text().replace("epochs: 7", "epochs: many").replace("seed: 3", "s: 3")
    )
    code, lines = checked(capsys, "zoo", "check", card)
    assert code == 2
    assert [line.split(": ")[1] for line in lines] == ["epochs", "seed", "s"]


# --- the hooks -----------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path, zoo):
    """A repository with a good and a bad file for each hook."""
    folder = tmp_path / "project"
    (folder / "recipes").mkdir(parents=True)
    (folder / "recipes/good.yaml").write_text(HEAD + "training: {epochs: 3}\n")
    (folder / "recipes/bad.yaml").write_text(HEAD + "training: {epoch: 3}\n")
    shutil.copytree(zoo, folder / "model_zoo")
    (folder / "model_zoo/bad.yaml").write_text("x: 1\n")
    return folder


HOOK = {
    "robust0-recipes": ("recipes/good.yaml", "recipes/bad.yaml:3: unknown key training.epoch"),
    "robust0-cards": (f"model_zoo/{NAME}.yaml", "model_zoo/bad.yaml does not say schema"),
}


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("name", HOOK)
def test_an_entry_as_it_is_written(project, name):
    good, fault = HOOK[name]
    bad = fault.split(".yaml")[0] + ".yaml"
    for file in (good, bad):
        assert re.search(HOOKS[name]["files"], file)
    assert not re.search(HOOKS[name]["files"], "docs/other.yaml")
    words = shlex.split(HOOKS[name]["entry"])
    for files, code in (([good], 0), ([good, bad], 2)):
        done = subprocess.run(
            [*words, *files], cwd=project, env=environment(), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert [line.startswith(fault) for line in done.stdout.splitlines()] == [True] * (code // 2)


def test_pre_commit_runs_the_hooks(project, tmp_path):
    """In a repository of their own: pre-commit clones what it takes hooks from."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    env = environment() | {
        "PRE_COMMIT_HOME": str(tmp_path / "cache"),
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    git = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org"]
    for folder in (hooks, project):
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
            subprocess.run([*git, *words], cwd=folder, env=env, check=True)
    words = [sys.executable, "-m", "pre_commit", "try-repo", str(hooks), "--all-files"]
    done = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("exit code: 2") == 2
    for _, fault in HOOK.values():
        assert fault in done.stdout


def test_no_torch_is_imported():
    script = (
        "import sys\nfrom robust0.cli.app import run\n"
        f"assert run(['recipe', 'check', {str(ROOT / 'recipes/quick.yaml')!r}]) == 0\n"
        f"assert run(['zoo', 'check', {str(ROOT / 'model_zoo/index.yaml')!r}]) == 0\n"
        "heavy = {'torch', 'torchvision', 'timm', 'numpy', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
