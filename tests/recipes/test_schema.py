import json
import subprocess
import sys

import pytest
from pydantic import BaseModel, ValidationError

from robust0.data.augment import AUGMENTATIONS
from robust0.recipes import schema
from robust0.recipes.load import load_recipe
from robust0.recipes.schema import Recipe
from robust0.registry import settings_of
from robust0.training.averaging import AVERAGINGS
from robust0.training.methods.named import FAMILIES
from robust0.training.optimizers import OPTIMISERS
from robust0.training.schedule import SCHEDULES

MODELS = [
    item
    for item in vars(schema).values()
    if isinstance(item, type) and issubclass(item, BaseModel) and item.__module__ == schema.__name__
]
REGISTRIES = FAMILIES | {
    "averaging": AVERAGINGS,
    "optimizer": OPTIMISERS,
    "schedule": SCHEDULES,
    "augment": AUGMENTATIONS,
}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_model_is_strict_and_every_field_is_explained(model):
    config = model.model_config
    assert (config["extra"], config["frozen"], config["strict"]) == ("forbid", True, True)
    assert model.__doc__
    for name, field in model.model_fields.items():
        assert field.description, f"{model.__name__}.{name}"


@pytest.mark.parametrize("family", REGISTRIES)
def test_every_component_is_frozen_and_every_setting_is_explained(family):
    for component in REGISTRIES[family].members().values():
        assert component.__doc__
        assert component.__dataclass_params__.frozen
        for item in settings_of(component):
            assert item.about, f"{component.__name__}.{item.name}"
            assert item.source, f"{component.__name__}.{item.name}"


def test_a_recipe_cannot_be_changed():
    recipe = load_recipe("cifar10").recipe
    with pytest.raises(ValidationError):
        recipe.training.epochs = 3


def test_the_defaults_are_the_settings_of_the_paper():
    """A recipe with only what must be said trains and audits as cifar10.yaml does."""
    spelled = load_recipe("cifar10").recipe
    short = Recipe.model_validate_json(
        json.dumps(
            {
                "schema": 1,
                "name": spelled.name,
                "description": spelled.description,
                "dataset": {"name": "cifar10", "image_size": 32},
                "model": {"name": "preact_resnet18"},
                "threat": {"pixels": 20},
                "training": {
                    "threat": {"pixels": 120},
                    "method": "fast-ls-l0",
                    "noise": {"kind": "sparse"},
                    "labels": {"kind": "self-adaptive"},
                    "inner": {"kind": "sparse-pgd"},
                    "objective": {"kind": "trades"},
                },
                "audit": {"attacks": [item.model_dump() for item in spelled.audit.attacks]},
            }
        )
    )
    assert short == spelled


def test_threats():
    assert (schema.ThreatSpec(pixels=3).budget, schema.ThreatSpec(pixels=3).unit) == (3, "pixel")
    assert (schema.ThreatSpec(features=9).budget, schema.ThreatSpec(features=9).unit) == (
        9,
        "feature",
    )
    for wrong in ({}, {"pixels": 1, "features": 1}, {"pixels": 0}, {"features": -1}):
        with pytest.raises(ValidationError):
            schema.ThreatSpec(**wrong)


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (schema.DatasetSpec, {"name": "x", "classes": ("a", "a")}),
        (schema.DatasetSpec, {"name": "x", "classes": ("a",)}),
        (schema.DatasetSpec, {"name": "x", "classes": ()}),
        (schema.DatasetSpec, {"name": ""}),
    ],
)
def test_values_out_of_range(model, values):
    with pytest.raises(ValidationError):
        model(**values)


@pytest.mark.parametrize(
    ("family", "values"),
    [
        ("optimizer", {"kind": "sgd", "nesterov": True, "momentum": 0.0}),
        ("optimizer", {"kind": "sgd", "lr": 0.0}),
        ("optimizer", {"kind": "sgd", "momentum": 1.0}),
        ("optimizer", {"kind": "adamw", "betas": [0.9, 1.0]}),
        ("schedule", {"kind": "steps", "milestones": [0.75, 0.25]}),
        ("schedule", {"kind": "steps", "milestones": [0.5, 0.5]}),
        ("schedule", {"kind": "steps", "milestones": [1.0]}),
        ("schedule", {"kind": "one-cycle", "warmup": 1.0}),
        ("augment", {"kind": "shift", "pad": -1}),
        ("augment", {"kind": "shift", "flip": 1}),
        ("augment", {"kind": "resized-crop", "scale": 0.0}),
        ("labels", {"kind": "self-adaptive", "momentum": 1.0}),
        ("inner", {"kind": "sparse-pgd", "steps": True}),
        ("objective", {"kind": "trades", "beta": float("nan")}),
        ("objective", {"kind": "trades", "beta": float("inf")}),
        ("step", {"kind": "free-at", "replays": 0}),
        ("averaging", {"kind": "ema", "decay": 1.0}),
        ("averaging", {"kind": "swa", "every": 0}),
    ],
)
def test_settings_out_of_range(family, values):
    with pytest.raises(ValidationError):
        REGISTRIES[family].read(values)


def test_nothing_here_imports_torch():
    code = (
        "import sys, robust0.cli.recipe\n"
        "assert 'torch' not in sys.modules and 'pydantic' not in sys.modules\n"
        "from robust0.recipes.load import load_recipe\n"
        "load_recipe('quick')\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
