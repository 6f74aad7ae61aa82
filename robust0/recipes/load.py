"""From a recipe's name or path to a validated recipe, its hash and the source of every value.

The order: the file it extends, the file itself, the families that fit the model, the schedule of
fine-tuning where that is done, ``--model`` and ``--set``, of which another method drops what the
recipe says of parts that it does not have; then method and effort are spelled out,
and only then is the whole validated, so that no layer has a way round the rules.
"""

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from robust0.errors import RecipeError
from robust0.files import at_home
from robust0.recipes.efforts import expand_audit
from robust0.recipes.explain import explain
from robust0.recipes.keys import family_faults, file_shape, key_faults, refuse_all
from robust0.recipes.layers import command_line, families_of, fine_tuning, overlay
from robust0.recipes.methods import defaults, expand_training, for_method
from robust0.recipes.schema import AuditSpec, DatasetSpec, Recipe
from robust0.recipes.tree import (
    DEFAULT,
    Branch,
    Leaf,
    Origin,
    branch,
    dotted,
    grow,
    leaves,
    origin_of,
    plain,
    relabel,
    value_at,
)
from robust0.recipes.yaml_source import dump, read_file
from robust0.resources import shipped

SCHEMA = 1
_SUFFIXES = (".yaml", ".yml")
_OWN_KEYS = ("schema", "name", "description", "extends")


@dataclass(frozen=True, slots=True)
class ResolvedRecipe:
    """A recipe as it will run."""

    recipe: Recipe
    hash: str
    sources: Mapping[str, Origin]

    def flat(self) -> dict[str, object]:
        """Every value by its dotted key, in the order of the schema."""
        tree = grow(_values(self.recipe), DEFAULT)
        return {dotted(path): leaf.value for path, leaf in leaves(tree)}


def list_recipes() -> tuple[str, ...]:
    """The names of the shipped recipes."""
    return tuple(sorted(path.stem for path in shipped("recipes").glob("*.yaml")))


def recipe_of(data: str | None) -> str:
    """The name of a dataset's own recipe; data that has none takes CIFAR-10's."""
    return data if data is not None and data in list_recipes() else "cifar10"


def load_recipe(
    name_or_path: str,
    *,
    model: str | None = None,
    changes: Mapping[str, object] | None = None,
    overrides: Sequence[str] = (),
    fine_tune: bool = False,
) -> ResolvedRecipe:
    """The recipe of a shipped name or a YAML file.

    Args:
        name_or_path: a name from ``list_recipes``, or a path ending in .yaml or .yml.
        model: replaces the recipe's model; families follow it.
        changes: values by dotted key, as other options of the command line give them.
        overrides: ``key=value`` texts of ``--set``, applied last.
        fine_tune: the weights are trained already: the schedule is one for that.
    """
    path = _locate(name_or_path, Path(), DEFAULT)
    tree = overlay(defaults(), _with_base(path))
    top = command_line(model, changes or {}, overrides)
    families = branch(tree.pop("families", None), ("families",))
    name = value_at(top, "model", "name") or value_at(tree, "model", "name")
    for family in families_of(families, name if isinstance(name, str) else ""):
        tree = overlay(tree, family)
    tree = for_method(tree, top)
    tree = overlay(overlay(tree, fine_tuning()) if fine_tune else tree, top)
    tree["training"] = expand_training(branch(tree.get("training"), ("training",)))
    tree["audit"] = expand_audit(branch(tree.get("audit"), ("audit",)))
    return _validated(tree, path.name)


def read_audit(values: Mapping[str, object]) -> AuditSpec:
    """The audit block of a recipe on its own: names and effort spelled out, then validated."""
    given = Origin("argument")
    tree = expand_audit(branch(grow(values, given), ("audit",)))
    try:
        return AuditSpec.model_validate_json(json.dumps(plain(tree)))
    except ValidationError as problem:
        raise explain(problem, tree, given.where) from problem


def read_dataset(path: Path) -> DatasetSpec:
    """The dataset block of a resolved recipe; nothing else of it is looked at or imported."""
    tree = branch(read_file(path).get("dataset"), ("dataset",))
    try:
        return DatasetSpec.model_validate_json(json.dumps(plain(tree)))
    except ValidationError as problem:
        raise explain(problem, tree, path.name) from problem


def recipe_hash(recipe: Recipe) -> str:
    """sha256 of the canonical JSON of a resolved recipe."""
    return settings_hash(_values(recipe))


def section_hash(recipe: Recipe, *sections: str) -> str:
    """sha256 of some sections: what a run depends on, whatever else a recipe may say."""
    values = _values(recipe)
    return settings_hash({section: values[section] for section in sections})


def settings_hash(values: Mapping[str, object]) -> str:
    """sha256 of the canonical JSON of plain values."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def dump_recipe(recipe: Recipe) -> str:
    """The resolved recipe as YAML; loading it again gives the same recipe and hash."""
    return dump(_values(recipe))


def _values(recipe: Recipe) -> dict[str, object]:
    values: dict[str, object] = recipe.model_dump(mode="json", by_alias=True)
    return values


def _validated(tree: Branch, file: str) -> ResolvedRecipe:
    try:
        # Through JSON: strict types, yet lists become the tuples of frozen models.
        recipe = Recipe.model_validate_json(json.dumps(plain(tree)))
    except ValidationError as problem:
        raise explain(problem, tree, file) from problem
    written = {path: leaf.origin for path, leaf in leaves(tree)}
    paths = (path for path, _ in leaves(grow(_values(recipe), DEFAULT)))
    sources = {dotted(path): written.get(path, DEFAULT) for path in paths}
    return ResolvedRecipe(recipe, recipe_hash(recipe), sources)


def _locate(name_or_path: str, folder: Path, asked: Origin) -> Path:
    """The file of a shipped name, or of a path seen from a folder."""
    if name_or_path.endswith(_SUFFIXES) or "/" in name_or_path or "\\" in name_or_path:
        return folder / at_home(name_or_path)
    names = list_recipes()
    if name_or_path not in names:
        close = difflib.get_close_matches(name_or_path, names, n=2, cutoff=0.5)
        meant = f"did you mean {' or '.join(close)}? " if close else ""
        raise RecipeError(
            asked.says(f"there is no recipe named {name_or_path!r}"),
            f"{meant}shipped: {', '.join(names)}; a file needs its .yaml suffix",
        )
    return shipped("recipes") / f"{name_or_path}.yaml"


def _with_base(path: Path) -> Branch:
    """A file over the file it extends; one level, so that two files tell the whole story."""
    own = _read(path)
    extends = own.get("extends")
    own = {key: item for key, item in own.items() if key != "extends"}
    if "name" not in own:
        own["name"] = Leaf(path.stem, Origin(path.name, "file name"))
    if extends is None:
        return own
    target = plain(extends)
    if not isinstance(target, str):
        raise RecipeError(
            origin_of(extends).says(f"extends must be a recipe's name or path, got {target!r}"),
            f"one of {', '.join(list_recipes())}, or a .yaml file",
        )
    asked = origin_of(extends)
    base_path = _locate(target, path.parent, asked)
    _refuse_outside(base_path, path.parent, asked)
    if base_path.resolve() == path.resolve():
        raise RecipeError(asked.says("the recipe extends itself"), "extend another recipe")
    if not base_path.exists():
        raise RecipeError(
            asked.says(f"extends {target!r}, but {base_path} does not exist"),
            "a path in extends is seen from the recipe's own folder",
        )
    base = _read(base_path)
    if "extends" in base:
        raise RecipeError(
            asked.says(f"{target!r} itself extends {plain(base['extends'])!r}"),
            "extends goes one level: extend that recipe directly, or copy what is missing",
        )
    below = {key: item for key, item in base.items() if key not in _OWN_KEYS}
    return overlay(branch(relabel(below, f"extends {Path(target).stem}"), ()), own)


def _refuse_outside(base: Path, folder: Path, asked: Origin) -> None:
    """A recipe may extend recipes of its own project only: errors quote what a file says."""
    here = base.resolve()
    inside = any(here.is_relative_to(place.resolve()) for place in (folder, Path()))
    if here.parent == shipped("recipes").resolve() or (inside and here.suffix in _SUFFIXES):
        return
    raise RecipeError(
        asked.says("a recipe extends a shipped recipe, or a .yaml file of its own project"),
        "copy the recipe beside this one, or work in the folder that holds both",
    )


def _read(path: Path) -> Branch:
    """A file whose keys are known and whose schema is ours."""
    tree = read_file(path)
    schema = value_at(tree, "schema")
    if schema != SCHEMA or isinstance(schema, bool):
        said = "is missing" if schema is None else f"is {schema!r}"
        raise RecipeError(
            f"{path.name}: schema {said}, this robust0 reads {SCHEMA}",
            f"write schema: {SCHEMA}" if schema is None else "use the robust0 it was written for",
        )
    origin = Origin(path.name)
    families = branch(tree.get("families"), ("families",))
    refuse_all((*key_faults(tree, file_shape(), origin), *family_faults(families, origin)))
    return tree
