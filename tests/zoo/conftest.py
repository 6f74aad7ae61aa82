"""A small released model: a training run, a hand-made audit of it, and the zoo made from both."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from torch import nn

from robust0.auditing.finish import rebuild_report
from robust0.commands.zoo_add import Publication, add
from robust0.download import fetch
from robust0.models.build import NetworkSpec, build
from robust0.models.checkpoint import Budget, Metadata, save_checkpoint
from tests.auditing.factory_report import Recipe, make_run

NAME = "toy-fast"
COMMAND = ("robust0", "audit", "runs/x/model.safetensors", "--eps", "3", "-o", "/home/me/runs/a")


def save_model(
    path: Path,
    *,
    arch: str = "preact_resnet18_w8",
    network: nn.Module | None = None,
    **facts: object,
) -> str:
    """A network that says of itself what robust0 harden would; its sha256."""
    spec = NetworkSpec(arch, 10, (3, 32, 32), (0.5,) * 3, (0.25,) * 3)
    known = {
        "dataset": "sample", "variant": "official", "method": "fast-ls-l0", "epochs": 7, "seed": 3,
        "train_budget": Budget(unit="pixel", amount=18), "recipe": "ab" * 32,
        "eval_budget": Budget(unit="pixel", amount=3),
    } | facts  # fmt: skip
    return save_checkpoint(path, network or build(spec), Metadata.of(spec, **known))


def fake_audit(folder: Path, digest: str, **changes: object) -> Path:
    """A finished audit of such a model, made by hand."""
    make_run(folder, Recipe(sha256=digest, model=COMMAND[2], command=COMMAND, **changes))
    for name in ("run.json", "report.json"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("preact_resnet18_w16", "preact_resnet18_w8"))
    rebuild_report(folder)
    return folder


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    (folder / "run").mkdir()
    digest = save_model(folder / "run" / "model.safetensors")
    command = ["robust0", "harden", "--data", "sample", "-o", "/home/me/run"]
    (folder / "run" / "options.json").write_text(json.dumps({"command": command}))
    fake_audit(folder / "audit", digest)
    add(folder / "run", folder / "audit", folder / "zoo", Publication(id=NAME))
    return folder


@pytest.fixture
def runs(made, tmp_path):
    """The training run and its audit, to be spoilt."""
    for name in ("run", "audit"):
        shutil.copytree(made / name, tmp_path / name)
    return tmp_path / "run", tmp_path / "audit"


@pytest.fixture
def zoo(made, tmp_path):
    """A zoo with one model, to be spoilt."""
    return Path(shutil.copytree(made / "zoo", tmp_path / "zoo"))


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A cache, settings and a hub of this test's own."""
    monkeypatch.setenv("ROBUST0_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ROBUST0_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.delenv("ROBUST0_ZOO", raising=False)
    monkeypatch.delenv("ROBUST0_OFFLINE", raising=False)


@pytest.fixture
def waits(monkeypatch):
    """Seconds that downloads wanted to wait, without waiting."""
    seconds = []
    monkeypatch.setitem(fetch.__kwdefaults__, "sleep", seconds.append)
    return seconds


@pytest.fixture
def serve(httpserver, zoo):
    """Put the files of the zoo behind a web server; the address."""

    def start(*left_out: str) -> str:
        for path in zoo.iterdir():
            if path.name not in left_out:
                request = httpserver.expect_request(f"/zoo/{path.name}")
                request.respond_with_data(path.read_bytes(), headers={"ETag": f'"{path.name}"'})
        return httpserver.url_for("/zoo")

    return start


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
