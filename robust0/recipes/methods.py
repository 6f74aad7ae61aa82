"""The training block of a recipe: a method's name spelled out as its parts."""

from typing import Final

from robust0.errors import RecipeError
from robust0.recipes.tree import (
    DEFAULT,
    Branch,
    Leaf,
    Origin,
    Tree,
    branch,
    grow,
    merge,
    origin_of,
    plain,
    value_at,
)
from robust0.training.methods.named import ALIASES, FAMILIES, expand, find_method, method_names

PARTS: Final = tuple(FAMILIES)
CUSTOM: Final = "custom"


def named_parts(training: Tree) -> str | None:
    """The method that a training block names, aliases resolved; None without one."""
    name = value_at(training, "method")
    return ALIASES.get(name, name) if isinstance(name, str) else None


def spelled_out(name: str, given: Branch) -> Branch:
    """The parts of a method, each value with the section that states it."""
    known = {part: dict(plain(item)) for part, item in given.items()}  # type: ignore[call-overload] # branches
    return {
        part: {
            key: Leaf(value, Origin(f"method {name}", source))
            for key, (value, source) in values.items()
        }
        for part, values in expand(name, known).items()
    }


def for_method(tree: Branch, top: Tree) -> Branch:
    """A recipe without the tuning of parts that a method named above it does not have.

    A part that states its kind is no tuning, and stays.
    """
    training = branch(tree.get("training"), ("training",))
    named = branch(branch(top, ()).get("training"), ("training",))
    before, after = named_parts(training), named_parts(named)
    if before is None or after is None or CUSTOM in (before, after):
        return tree
    old, new = find_method(before), find_method(after, origin_of(named["method"]).says(""))
    kept = {
        key: value
        for key, value in training.items()
        if key not in PARTS
        or value_at(training, key, "kind") is not None
        or getattr(old, key) == getattr(new, key)
    }
    return {**tree, "training": kept}


def expand_training(training: Branch) -> Branch:
    """The training block with its parts spelled out: the method's, then the recipe's own."""
    given: Branch = {part: branch(training.get(part), ("training", part)) for part in PARTS}
    named = training.get("method", Leaf(CUSTOM, DEFAULT))
    name = named.value if isinstance(named, Leaf) else None
    if not isinstance(name, str):
        raise RecipeError(
            origin_of(named).says(f"training.method must be a method's name, got {name!r}"),
            f"one of {', '.join(method_names())}",
        )
    if name == CUSTOM:
        return {**training, "method": named, **_complete(given, origin_of(named))}
    find_method(name, origin_of(named).says(""))
    expanded = spelled_out(name, given)
    parts = merge(expanded, given)
    if _identity(parts) != _identity(expanded):
        named = Leaf(CUSTOM, Origin("derived", f"parts differ from {name}"))
    return {**training, "method": named, **parts}


def _identity(parts: Branch) -> tuple[object, ...]:
    """What makes a method the method it is; all other settings are its tuning."""
    kinds = (value_at(parts, part, "kind") for part in PARTS)
    return (*kinds, value_at(parts, "inner", "loss") == "kl")


def _complete(given: Branch, origin: Origin) -> Branch:
    given = {"step": grow({"kind": "plain"}, DEFAULT)} | {k: v for k, v in given.items() if v}
    missing = [part for part in PARTS if value_at(given, part, "kind") is None]
    if missing:
        raise RecipeError(
            origin.says(f"without a training.method, training.{missing[0]}.kind must be given"),
            f"name a method ({', '.join(ALIASES)}, ...) or spell out {', '.join(PARTS)}",
        )
    return given


def defaults() -> Branch:
    """The usual kinds of training blocks, so that a recipe may tune one without naming it."""
    kinds = {"optimizer": "sgd", "schedule": "steps", "augment": "shift", "averaging": "none"}
    tree = grow({"training": {key: {"kind": kind} for key, kind in kinds.items()}}, DEFAULT)
    return branch(tree, ())
