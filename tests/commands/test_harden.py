"""What a training run refuses before it begins, and what a resumed one may change."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robust0.cli.app import run
from robust0.commands.harden import HardenOptions, prepare
from robust0.commands.harden import opened as open_folder
from robust0.distributed import World
from robust0.errors import ModelError, RecipeError, RunError

OUT = Path("run")
CPU = torch.device("cpu")
SMALL = HardenOptions(
    data="sample", model="preact_resnet18_w8", epochs=1, train_images=128, out=OUT
)


def opened(options):
    run = prepare(options, CPU, World(), lambda _: None)
    with open_folder(run, World()):
        return run.job, run.resuming


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_resumed_run_may_stop_at_overfitting_from_now_on():
    assert not opened(SMALL)[0].watch.stop
    job, resuming = opened(HardenOptions(resume=Path("run"), stop_on_co=True))
    assert resuming
    assert job.watch.stop
    assert not opened(HardenOptions(resume=Path("run")))[0].watch.stop


def test_a_run_keeps_every_epoch_if_it_was_told_to_or_is_told_now():
    assert not opened(SMALL)[0].keep_epochs
    kept = json.loads(Path("run/options.json").read_text(encoding="utf-8"))
    kept.pop("keep_epochs")  # a run of an earlier version
    Path("run/options.json").write_text(json.dumps(kept), encoding="utf-8")
    assert not opened(HardenOptions(resume=Path("run")))[0].keep_epochs
    assert opened(HardenOptions(resume=Path("run"), keep_epochs=True))[0].keep_epochs


def test_a_resumed_run_may_not_be_compiled_if_it_was_not():
    opened(SMALL)
    with pytest.raises(RunError, match="without --compile"):
        opened(HardenOptions(resume=Path("run"), compile=True))


def test_a_training_run_never_executes_code(tmp_path, monkeypatch):
    opened(SMALL)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "trap.py").write_text("from pathlib import Path; Path('sprung').touch()\n")
    again, kept, recipe = HardenOptions(resume=Path("run")), "run/options.json", "run/recipe.yaml"
    words = {name: Path(name).read_text() for name in (kept, recipe)}
    Path(kept).write_text(words[kept].replace('"factory": null', '"factory": "trap:make"'))
    with pytest.raises(RunError) as refusal:
        opened(again)
    assert refusal.value.hint == "if you trust it, add --factory trap:make"
    Path(kept).write_text(words[kept])
    for before, after, flag in (
        ("method: fast-ls-l0", "method: trap:METHOD", "--method trap:METHOD"),
        ("kind: sparse\n", "kind: trap:Noise\n", "--set training.noise.kind=trap:Noise"),
        ("kind: self-adaptive", "kind: trap:Own", "--set training.labels.kind=trap:Own"),
    ):
        Path(recipe).write_text(words[recipe].replace(before, after))
        with pytest.raises(RunError) as refusal:
            opened(again)
        assert refusal.value.hint == f"if you trust it, add {flag}"
    assert not Path("sprung").exists()


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "3", '{"factory": 3}', '{"compile": "no"}', "[" * 100_000, "\0"]
)
def test_damaged_options_are_refused(text):
    opened(SMALL)
    Path("run/options.json").write_text(text)
    with pytest.raises(RunError, match=r"options\.json is damaged"):
        opened(HardenOptions(resume=Path("run")))


def test_a_run_killed_while_it_was_begun_can_be_started_anew():
    opened(SMALL)
    Path("run/recipe.yaml").unlink()  # written last
    assert not opened(SMALL)[1]


def test_a_network_that_does_not_fit_its_data_is_refused_before_anything_is_written(monkeypatch):
    Path("nets.py").write_text(
        "from torch import nn\n\n\ndef colour():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2))\n\n\n"
        "class Stuck(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.w = nn.Linear(64, 2)\n\n"
        "    def forward(self, images):\n        return self.w(images.flatten(1)).detach()\n"
    )
    monkeypatch.syspath_prepend(".")
    labels = np.arange(40) % 2
    np.savez("grey.npz", images=np.zeros((40, 8, 8), dtype=np.uint8), labels=labels)
    budgets = ("threat.pixels=2", "training.threat.pixels=4")
    grey = HardenOptions(data="npz:grey.npz", factory="nets:colour", overrides=budgets, out=OUT)
    with pytest.raises(ModelError, match=r"fails on 1x8x8 images: .* 3 channels"):
        prepare(grey, CPU, World(), lambda _: None)
    with pytest.raises(ModelError, match="cannot be trained on 1x8x8 images") as refusal:
        prepare(replace(grey, factory="nets:Stuck"), CPU, World(), lambda _: None)
    assert refusal.value.exit_code == 2
    assert not OUT.exists()


def test_a_dry_run_says_how_long_and_writes_nothing(capsys):
    words = ["harden", "--data", "sample", "--model", "preact_resnet18_w8", "--train-images", "64"]
    assert run([*words, "--dry-run", "-o", "run", "--device", "cpu"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "5 x 1 of 64 images" in said
    assert "on this CPU" in said
    assert not OUT.exists()


def test_settings_of_the_audit_are_no_part_of_a_training_run():
    first = prepare(SMALL, CPU, World(), lambda _: None).job.identity
    audit = replace(SMALL, overrides=("audit.images=7",))
    assert prepare(audit, CPU, World(), lambda _: None).job.identity == first
    threat = replace(SMALL, overrides=("threat.pixels=7",))
    assert prepare(threat, CPU, World(), lambda _: None).job.identity != first


def test_an_evaluation_budget_beyond_the_image_is_refused_before_training():
    with pytest.raises(RecipeError, match="2000"):
        opened(replace(SMALL, overrides=("threat.pixels=2000",)))
