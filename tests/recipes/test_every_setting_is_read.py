"""An option that nothing reads is a lie: every setting must be used by what it is a setting of."""

import ast
import inspect
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from robust0.recipes import schema
from robust0.registry import settings_of
from tests.recipes.test_schema import REGISTRIES

PACKAGE = Path(schema.__file__).parents[1]
BUILDERS = sorted(p for area in ("commands", "runs") for p in (PACKAGE / area).glob("*.py"))
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


def attributes_read():
    read = set()
    for path in BUILDERS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                read.add(node.attr)
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                read.add(node.slice.value)
    return read


UNITS = {"pixels": "pixel", "features": "feature", "rows": "row", "columns": "column"}


@pytest.mark.parametrize("field", [*UNITS, "patches"])
def test_every_field_of_a_threat_becomes_its_unit(field):
    size = {"patch_size": 2} if field == "patches" else {}
    spec = schema.ThreatSpec(**{field: 7}, **size)
    assert (spec.budget, spec.unit) == (7, UNITS.get(field, "patch:2"))
    changes = schema.threat_changes(spec.budget, spec.unit)
    assert changes == {f"threat.{key}": value for key, value in {field: 7, **size}.items()}


@pytest.mark.parametrize("name", sorted(set(models()) - {"ThreatSpec"}))
def test_every_field_is_read_by_a_builder(name):
    read = attributes_read()
    fields = {field for field in models()[name].model_fields if (name, field) not in DESCRIPTIVE}
    assert fields <= read


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
