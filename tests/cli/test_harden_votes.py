"""From a recipe to a voting classifier on disk."""

import robust0
from robust0.cli.app import run
from robust0.models.voting import ViewVoting


def test_harden_leaves_the_whole_classifier(tmp_path):
    changes = ["training.probe.images=4", "training.step.stride=2", "model.args={}"]
    changes += ["model.name=viewnet", "training.batch_size=16"]
    options = [part for change in changes for part in ("--set", change)]
    small = ["--data", "sample", "--epochs", "1", "--train-images", "32"]
    assert (
        run(["harden", "--recipe", "votes-few", *small, *options, "-o", str(tmp_path / "run")]) == 0
    )
    model = robust0.load(tmp_path / "run" / "best.safetensors")
    assert type(model) is ViewVoting
