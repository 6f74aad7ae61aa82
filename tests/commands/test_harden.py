"""What a resumed training run may change."""

import json
from pathlib import Path

import pytest
import torch

from robust0.commands.harden import HardenOptions, open_run
from robust0.distributed import World
from robust0.errors import RecipeError, RunError

CPU = torch.device("cpu")
SMALL = HardenOptions(
    data="sample", model="preact_resnet18_w8", epochs=1, train_images=128, out=Path("run")
)


def opened(options):
    with open_run(options, CPU, World(), lambda _: None) as (job, resuming):
        return job, resuming


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


def test_an_evaluation_budget_beyond_the_image_is_refused_before_training():
    from dataclasses import replace

    with pytest.raises(RecipeError, match="2000"):
        opened(replace(SMALL, overrides=("threat.pixels=2000",)))
