"""One layer of a recipe over another: files, model families and ``--set``."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from robust0.attacks.battery import budget_keys
from robust0.errors import RecipeError
from robust0.recipes.keys import check_keys, setting_shape
from robust0.recipes.methods import PARTS, named_parts
from robust0.recipes.tree import (
    Branch,
    Leaf,
    Origin,
    Path,
    Tree,
    branch,
    grow,
    merge,
    relabel,
    value_at,
)
from robust0.recipes.yaml_source import read_text
from robust0.registry import OWN

# Options that say a value of the recipe: messages name what was typed.
_OPTIONS = {
    "dataset.name": "--data",
    "training.method": "--method",
    "training.inner.steps": "--steps",
    "training.epochs": "--epochs",
    "training.images": "--train-images",
    "training.batch_size": "--batch-size",
    "training.seed": "--seed",
    "model.pretrained": "--pretrained",
    "audit.mode": "--mode",
    "audit.effort": "--effort",
    "audit.images": "--images",
    "audit.attacks": "--attacks",
    "audit.seed": "--seed",
    "audit.tolerance": "--tolerance",
    "audit.max_passes": "--max-passes",
    "audit.max_minutes": "--max-minutes",
}


def overlay(lower: Branch, upper: Branch) -> Branch:
    """The upper layer over the lower one, without what the upper layer makes void.

    A layer that names another training method voids the parts that the layers below spelled out
    (those with a ``kind``); one that names another effort voids their attack budgets. So a resolved
    recipe, where everything is spelled out, can still be given another method or effort.
    """
    lower = dict(lower)
    method = named_parts(upper.get("training", {}))
    if method is not None and method != named_parts(lower.get("training", {})):
        lower["training"] = _without_parts(branch(lower.get("training"), ("training",)))
    effort = value_at(upper, "audit", "effort")
    if effort is not None and effort != (value_at(lower, "audit", "effort") or "paper"):
        lower["audit"] = _without_budgets(branch(lower.get("audit"), ("audit",)))
    return merge(lower, upper)


def _without_parts(training: Branch) -> Branch:
    return {
        key: item
        for key, item in training.items()
        if key not in PARTS or value_at(item, "kind") is None
    }


def _without_budgets(audit: Branch) -> Branch:
    audit = dict(audit)
    if "params" in audit:
        tuning = branch(audit["params"], ("audit", "params"))
        audit["params"] = {name: _tuning_only(params) for name, params in tuning.items()}
    attacks = audit.get("attacks")
    if isinstance(attacks, list):
        audit["attacks"] = [
            {**entry, "params": _tuning_only(entry["params"])}
            if isinstance(entry, dict) and "params" in entry
            else entry
            for entry in attacks
        ]
    return audit


def _tuning_only(params: Tree) -> Tree:
    if not isinstance(params, dict):
        return params
    return {key: item for key, item in params.items() if key not in budget_keys()}


def families_of(families: Branch, model: str) -> list[Branch]:
    """The changes of every family whose pattern fits the model's name, in the order written."""
    bare = model.rsplit("/", 1)[-1].removeprefix("hf-hub:").removeprefix("local-dir:").lower()
    return [
        branch(relabel(family, f"family {pattern}"), ("families", pattern))
        for pattern, family in families.items()
        if fnmatchcase(bare, pattern.lower())
    ]


def fine_tuning() -> Branch:
    """The schedule of weights that are trained already, in place of one made for random weights.

    The optimiser's rate stays the recipe's; the schedule keeps to a small part of it.
    """
    schedule = {
        "kind": "one-cycle", "peak": 0.1, "warmup": 0.1, "start": 0.0, "end": 0.0,
        "shape": "cosine",
    }  # fmt: skip
    tree = grow({"training": {"schedule": schedule}}, Origin("fine-tuning", OWN))
    return branch(tree, ())


def command_line(
    model: str | None, changes: Mapping[str, object], overrides: Sequence[str]
) -> Branch:
    """The layer of ``--model``, of other options and of ``--set key=value``; a later one wins."""
    layer: Branch = {}
    if model is not None:
        layer = {"model": {"name": Leaf(model, Origin("--model"))}}
    for key, value in changes.items():
        origin = Origin("--set", file=_OPTIONS.get(key, f"--set {key}"))
        layer = merge(layer, _placed(tuple(key.split(".")), grow(value, origin)))
    for text in overrides:
        layer = merge(layer, _assignment(text))
    check_keys(layer, setting_shape(), Origin("--set"))
    return layer


def _placed(path: Path, tree: Tree) -> Branch:
    for part in reversed(path):
        tree = {part: tree}
    return branch(tree, ())


def _assignment(text: str) -> Branch:
    key, equals, value = text.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path) or not value.strip():
        raise RecipeError(
            f"--set takes key=value, got {text!r}",
            "for example --set training.epochs=3, or key=null for no value",
        )
    label = f"--set {key.strip()}"
    return _placed(path, _bare(relabel(read_text(value, label), "--set"), label))


def _bare(tree: Tree, label: str) -> Tree:
    """Values of the command line have no file and line: messages name the option instead."""
    if isinstance(tree, Leaf):
        return Leaf(tree.value, Origin("--set", tree.origin.note, label))
    if isinstance(tree, list):
        return [_bare(item, label) for item in tree]
    return {key: _bare(item, label) for key, item in tree.items()}
