"""Every method by name: built from its recipe, it trains two steps and changes the weights."""

import pytest
import torch

from robust0.commands.build_training import TrainRequest, build_training
from robust0.distributed import World
from robust0.errors import RecipeError
from robust0.events import StepDone
from robust0.recipes.load import load_recipe
from robust0.training import loop
from robust0.training.methods.named import find_method, method_names
from robust0.training.methods.objectives import Answers

# The usual families, as small as timm makes them.
FAMILIES = {
    "convnext_atto": "{depths: [1, 1, 1, 1], dims: [8, 16, 32, 64]}",
    "swin_tiny_patch4_window7_224": "{embed_dim: 12, depths: [2, 2], num_heads: [1, 1]}",
    "resnet18": "{channels: [8, 16, 32, 64]}",
}


def job(folder, model, *changes):
    folder.mkdir(exist_ok=True)
    settings = (
        "dataset.name=sample", "training.images=16", "training.batch_size=8", "training.epochs=1",
        "training.probe.images=0", "training.labels.start=0.0", *changes,
    )  # fmt: skip
    hard = [change for change in settings if not change.startswith("training.labels.start")]
    try:
        resolved = load_recipe("cifar10", model=model, overrides=settings)
    except RecipeError:  # hard labels have no start
        resolved = load_recipe("cifar10", model=model, overrides=hard)
    return build_training(resolved, TrainRequest(folder, torch.device("cpu")))


def two_steps(made):
    before = [weight.detach().clone() for weight in made.network.parameters()]
    events = list(loop.run_training(made, World(), resume=False))
    (report,) = [event for event in events if isinstance(event, StepDone)]
    assert report.step == 2
    changed = [
        not torch.equal(a, b) for a, b in zip(before, made.network.parameters(), strict=True)
    ]
    assert sum(changed) > 0.9 * len(changed)
    assert (made.folder / "model.safetensors").exists()
    return report


@pytest.mark.parametrize("method", method_names())
def test_every_method_trains(tmp_path, method):
    made = job(tmp_path / "run", "preact_resnet18_w8", f"training.method={method}")
    report = two_steps(made)
    logits, labels = torch.eye(3), torch.arange(3)
    answers = Answers(logits, logits, labels, torch.eye(3), torch.ones(3))
    assert set(report.parts) == set(made.method.objective(answers))
    learned = made.method.targets.learned()
    assert (learned is not None) == (find_method(method).labels == "self-adaptive")


@pytest.mark.parametrize("method", ["fast-ls-l0", "sparse-at", "strades-f+s"])
@pytest.mark.parametrize("model", FAMILIES)
def test_three_methods_train_on_the_usual_families(tmp_path, model, method):
    two_steps(
        job(
            tmp_path / "run",
            model,
            f"training.method={method}",
            f"model.args={FAMILIES[model]}",
            "training.images=4",
            "training.batch_size=2",
        )
    )


@pytest.mark.parametrize("steps", [1, 20])
@pytest.mark.parametrize("stop_early", ["true", "false"])
def test_one_and_twenty_steps_with_and_without_early_stopping(tmp_path, steps, stop_early):
    made = job(
        tmp_path / "run", "preact_resnet18_w8", "training.method=sparse-at",
        f"training.inner.steps={steps}", f"training.inner.stop_early={stop_early}",
    )  # fmt: skip
    assert made.method.inner.steps == steps
    two_steps(made)


def test_feature_space(tmp_path):
    made = job(
        tmp_path / "run", "preact_resnet18_w8", "training.threat.features=360", "threat.features=60"
    )
    assert made.method.threat.unit == "feature"
    two_steps(made)


def test_the_reserved_images_are_never_trained_on(tmp_path):
    made = job(tmp_path / "run", "preact_resnet18_w8", "training.images=null")
    assert len(made.reserved) == 100
    assert len(made.rows) == 900
    assert not set(made.rows.tolist()) & set(made.reserved.tolist())
