"""An option that nothing reads is a lie: every setting must be used by what it is a setting of."""

import ast
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import BaseModel

from robust0.cli.app import run
from robust0.commands.build_training import TrainRequest, build_training
from robust0.recipes import schema
from robust0.recipes.load import load_recipe
from robust0.registry import settings_of
from tests.recipes.test_schema import REGISTRIES

# These say what the file is, not what to do.
DESCRIPTIVE = {("Recipe", "schema_version"), ("Recipe", "description"), ("Recipe", "name")}
# The builder hands it on: the method needs it, not the targets.
HANDED_ON = {("SelfAdaptiveLabels", "input")}


def models():
    return {
        name: value
        for name, value in vars(schema).items()
        if inspect.isclass(value) and issubclass(value, BaseModel) and value.model_fields
    }


def spy_on(model, patch, seen):
    """Note the fields of a model that are read, except by the model's own module."""
    plain = model.__getattribute__

    def noting(self, name):
        if name in type(self).model_fields and sys._getframe(1).f_globals is not vars(schema):
            seen.add((type(self).__name__, name))
        return plain(self, name)

    patch.setattr(model, "__getattribute__", noting)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """(class, field) of everything that building a training and an audit reads of a recipe."""
    found, folder = set(), tmp_path_factory.mktemp("read")
    np.savez(folder / "toy.npz", images=np.zeros((4, 8, 8, 3), np.uint8), labels=[0, 1, 2, 0])
    (folder / "toy_linear.py").write_text(
        "from torch import nn\n\n\n"
        "def make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(192, 3))\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        for model in models().values():
            spy_on(model, patch, found)
        small = ["dataset.name=sample", "training.images=8"]
        resolved = load_recipe("cifar10", model="preact_resnet18_w8", overrides=small)
        build_training(resolved, TrainRequest(folder / "run", torch.device("cpu")))
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        audit = ["audit", "--factory", "toy_linear:make", "--data", "npz:toy.npz", "--eps", "2"]
        assert run([*audit, "--effort", "converged", "--dry-run"]) == 0
    return found


UNITS = {"pixels": "pixel", "features": "feature", "rows": "row", "columns": "column"}


@pytest.mark.parametrize("field", [*UNITS, "patches"])
def test_every_field_of_a_threat_becomes_its_unit(field):
    size = {"patch_size": 2} if field == "patches" else {}
    spec = schema.ThreatSpec(**{field: 7}, **size)
    assert (spec.budget, spec.unit) == (7, UNITS.get(field, "patch:2"))
    changes = schema.threat_changes(spec.budget, spec.unit)
    assert changes == {f"threat.{key}": value for key, value in {field: 7, **size}.items()}


@pytest.mark.parametrize("name", sorted(set(models()) - {"ThreatSpec"}))
def test_every_field_is_read_when_a_run_is_built(seen, name):
    fields = {(name, field) for field in models()[name].model_fields} - DESCRIPTIVE
    assert fields <= seen


def test_a_field_of_the_same_name_does_not_count():
    class Read(schema.Section):
        images: int = 1

    class Unread(schema.Section):
        images: int = 1

    found = set()
    with pytest.MonkeyPatch.context() as patch:
        for model in (Read, Unread):
            spy_on(model, patch, found)
        assert Read().images == 1
        Unread().model_dump()
    assert found == {("Read", "images")}


def read_by_itself(name, source, helpers=()):
    """Attributes of ``self`` inside the class, of ``settings`` where a helper names the class."""
    read = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            read |= {a.attr for a in loads(node) if ast.unparse(a.value) == "self"}
    for text in (source, *helpers):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name != name and uses(node, name):
                read |= {a.attr for a in loads(node) if ast.unparse(a.value).endswith("settings")}
    return read


def loads(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node


def uses(tree, name):
    """Whether something in a class is annotated as holding these settings."""
    notes = [n.annotation for n in ast.walk(tree) if isinstance(n, ast.AnnAssign | ast.arg)]
    return any(note is not None and ast.unparse(note) == name for note in notes)


def components():
    return {c.__name__: c for r in REGISTRIES.values() for c in r.members().values()}


@pytest.mark.parametrize("name", sorted(components()))
def test_every_setting_is_read_by_its_component(name):
    component = components()[name]
    path = Path(sys.modules[component.__module__].__file__)
    helpers = [other.read_text() for other in path.parent.glob("*.py") if other != path]
    source = path.read_text()
    # All averages are used through what they have in common.
    source = source.replace("settings: Averaging", f"settings: {name}")
    read = read_by_itself(name, source, helpers)
    settings = {item.name for item in settings_of(component)}
    assert {s for s in settings if (name, s) not in HANDED_ON} <= read


def test_a_setting_of_another_class_does_not_count():
    source = (
        "class A:\n    beta: int = 1\n\n    def f(self):\n        return self.beta\n\n\n"
        "class B:\n    beta: int = 1\n\n    def f(self):\n        return 0\n\n\n"
        "class Helper:\n    settings: A\n\n    def f(self):\n        return self.settings.beta\n"
    )
    assert "beta" in read_by_itself("A", source)
    assert "beta" not in read_by_itself("B", source)
