"""What a resumed training run may change."""

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


def test_a_resumed_run_may_not_be_compiled_if_it_was_not():
    opened(SMALL)
    with pytest.raises(RunError, match="without --compile"):
        opened(HardenOptions(resume=Path("run"), compile=True))


def test_an_evaluation_budget_beyond_the_image_is_refused_before_training():
    from dataclasses import replace

    with pytest.raises(RecipeError, match="2000"):
        opened(replace(SMALL, overrides=("threat.pixels=2000",)))
