import json
import subprocess
import sys

import pytest
from pydantic import BaseModel, ValidationError

from robust0.recipes import parts, schema
from robust0.recipes.load import load_recipe
from robust0.recipes.schema import Recipe

MODELS = [
    item
    for module in (parts, schema)
    for item in vars(module).values()
    if isinstance(item, type) and issubclass(item, BaseModel) and item.__module__ == module.__name__
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_model_is_strict_and_every_field_is_explained(model):
    config = model.model_config
    assert (config["extra"], config["frozen"], config["strict"]) == ("forbid", True, True)
    assert model.__doc__
    for name, field in model.model_fields.items():
        assert field.description, f"{model.__name__}.{name}"


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
        (schema.SGD, {"nesterov": True, "momentum": 0.0}),
        (schema.SGD, {"lr": 0.0}),
        (schema.SGD, {"momentum": 1.0}),
        (schema.AdamW, {"betas": (0.9, 1.0)}),
        (schema.Steps, {"milestones": (0.75, 0.25)}),
        (schema.Steps, {"milestones": (0.5, 0.5)}),
        (schema.Steps, {"milestones": (1.0,)}),
        (schema.OneCycle, {"warmup": 1.0}),
        (schema.Shift, {"pad": -1}),
        (schema.Shift, {"flip": 1}),
        (schema.ResizedCrop, {"scale": 0.0}),
        (schema.DatasetSpec, {"name": "x", "classes": ("a", "a")}),
        (schema.DatasetSpec, {"name": "x", "classes": ("a",)}),
        (schema.DatasetSpec, {"name": "x", "classes": ()}),
        (schema.DatasetSpec, {"name": ""}),
        (parts.SelfAdaptiveLabels, {"kind": "self-adaptive", "momentum": 1.0}),
        (parts.SparsePGDInner, {"kind": "sparse-pgd", "steps": True}),
        (parts.TradesObjective, {"kind": "trades", "beta": float("nan")}),
    ],
)
def test_values_out_of_range(model, values):
    with pytest.raises(ValidationError):
        model(**values)


def test_nothing_here_imports_torch():
    code = (
        "import sys, robust0.cli.recipe\n"
        "assert 'torch' not in sys.modules and 'pydantic' not in sys.modules\n"
        "from robust0.recipes.load import load_recipe\n"
        "load_recipe('quick')\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
