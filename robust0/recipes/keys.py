"""Which keys a recipe may have, and what the user may have meant by one that it may not."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from robust0.errors import RecipeError
from robust0.recipes.schema import Recipe
from robust0.recipes.tree import Branch, Origin, Path, Tree, dotted, origin_of, plain, value_at
from robust0.registry import Registry, settings_of


@dataclass(frozen=True, slots=True)
class Shape:
    """What may stand at a place: a mapping with these keys, anything, or a single value."""

    keys: Mapping[str, "Shape"] = field(default_factory=dict)
    free: bool = False
    about: str = ""
    registry: Registry[Any] | None = None  # whose components may stand here


LEAF = Shape()
FREE = Shape(free=True)


def setting_shape() -> Shape:
    """What ``--set`` may reach: every field of a recipe, and ``audit.params`` by attack name."""
    keys = dict(_shape_of(Recipe).keys)
    keys["audit"] = Shape({**keys["audit"].keys, "params": FREE, "attacks": FREE})
    return Shape(keys)


def file_shape() -> Shape:
    """What a file may contain: the settings, a base to extend, and families (checked apart)."""
    return Shape({**setting_shape().keys, "extends": LEAF, "families": FREE})


def family_shape() -> Shape:
    """What a model family may change: never which model, data or threat is meant."""
    keys = setting_shape().keys
    model = {key: shape for key, shape in keys["model"].keys.items() if key != "name"}
    return Shape({"model": Shape(model), "training": keys["training"], "audit": keys["audit"]})


def check_keys(tree: Tree, shape: Shape, origin: Origin) -> None:
    """Refuse unknown keys, values where blocks belong and blocks where values belong.

    Args:
        tree: what was written.
        shape: what may be written.
        origin: the file or option, for what has no line of its own.
    """
    refuse_all(key_faults(tree, shape, origin))


def refuse_all(faults: Iterable[RecipeError]) -> None:
    """Raise the first of these, which then knows them all."""
    found = list(faults)
    if found:
        texts = [f"{fault.message} ({fault.hint})" for fault in found]
        raise RecipeError(found[0].message, found[0].hint, texts) from found[0].__cause__


def key_faults(tree: Tree, shape: Shape, origin: Origin, path: Path = ()) -> Iterator[RecipeError]:
    """Every key that may not stand where it stands."""
    if shape.free:
        return
    place = origin_of(tree, origin)
    if not shape.keys:
        if isinstance(tree, dict):
            yield RecipeError(
                place.says(f"{dotted(path)} must be a value, got a mapping"),
                f"{dotted(path)}: {shape.about}",
            )
        return
    if not isinstance(tree, dict):
        yield RecipeError(
            place.says(f"{dotted(path)} must be a mapping, got {plain(tree)!r}"),
            f"its keys are {', '.join(shape.keys)}",
        )
        return
    kind = value_at(tree, "kind")
    if shape.registry is not None and isinstance(kind, str) and ":" in kind:
        shape.registry.find(kind, place.says(""))  # a stranger: its settings are known from now on
        shape = _registry_shape(shape.registry)
    for key, item in tree.items():
        here = (*path, key)
        if key in shape.keys:
            yield from key_faults(item, shape.keys[key], origin, here)
        else:
            message = origin_of(item, origin).says(f"unknown key {dotted(here)}")
            yield RecipeError(message, _suggestion(here, shape))


def family_faults(families: Branch, origin: Origin) -> Iterator[RecipeError]:
    """The same in every family of a file, also in those that do not match today's model."""
    for pattern, family in families.items():
        yield from key_faults(family, family_shape(), origin, ("families", pattern))


def about(path: Path) -> str:
    """What the schema says of a key; empty for keys it does not know."""
    shape = setting_shape()
    for key in path:
        shape = shape.keys.get(key, LEAF)
    return shape.about


def _suggestion(path: Path, level: Shape) -> str:
    """A misspelt neighbour, then the same word elsewhere, then anything that looks like it."""
    if path[0] == "families" and not difflib.get_close_matches(path[-1], level.keys):
        return f"a family may set {', '.join(level.keys)} here"
    known = {dotted(item): item for item in _paths(setting_shape(), ())}
    near = difflib.get_close_matches(path[-1], level.keys, n=2, cutoff=0.6)
    close = [dotted((*path[:-1], key)) for key in near]
    close += [text for text, item in known.items() if item[-1] == path[-1]]
    close += difflib.get_close_matches(dotted(path), known, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(dict.fromkeys(close[:3]))}?"
    return "`robust0 recipe show cifar10` lists the keys"


def _paths(shape: Shape, path: Path) -> Iterator[Path]:
    for key, item in shape.keys.items():
        yield (*path, key)
        yield from _paths(item, (*path, key))


def _field_shape(info: FieldInfo) -> Shape:
    registry = next((item for item in info.metadata if isinstance(item, Registry)), None)
    shape = _shape_of(info.annotation) if registry is None else _registry_shape(registry)
    return replace(shape, about=info.description or "")


def _registry_shape(registry: Registry[Any]) -> Shape:
    """The settings of all components that may stand here."""
    kinds = f"which {registry.family}: {', '.join(registry)}"
    keys = {
        item.name: Shape(about=item.about)
        for component in registry.members().values()
        for item in settings_of(component)
    }
    return Shape({"kind": Shape(about=kinds), **keys}, registry=registry)


def _shape_of(annotation: object) -> Shape:
    """The shape of a type: models by their fields, unions of models by all their fields."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _shape_of(get_args(annotation)[0])
    if origin in {Union, UnionType}:
        shapes = [_shape_of(item) for item in get_args(annotation)]
        return Shape({key: item for shape in shapes for key, item in shape.keys.items()})
    if origin is dict:
        return FREE
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields.items()
        return Shape({info.alias or name: _field_shape(info) for name, info in fields})
    return LEAF
