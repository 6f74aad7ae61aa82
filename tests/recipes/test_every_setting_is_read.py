"""An option that nothing reads is a lie: every field of the recipe must be used by a builder."""

import ast
import inspect
from pathlib import Path

import pytest
from pydantic import BaseModel

from robust0.recipes import parts, schema

PACKAGE = Path(schema.__file__).parents[1]
BUILDERS = sorted(p for area in ("commands", "runs") for p in (PACKAGE / area).glob("*.py"))
# These say what the file is, not what to do.
DESCRIPTIVE = {("Recipe", "schema_version"), ("Recipe", "description"), ("Recipe", "name")}


def models():
    return {
        name: value
        for module in (parts, schema)
        for name, value in vars(module).items()
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


@pytest.mark.parametrize("name", sorted(models()))
def test_every_field_is_read_by_a_builder(name):
    read = attributes_read()
    fields = {field for field in models()[name].model_fields if (name, field) not in DESCRIPTIVE}
    assert fields <= read
