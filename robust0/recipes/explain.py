"""Validation errors as one line: the key, the place it was written, what was expected."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from robust0.errors import RecipeError
from robust0.recipes.keys import about
from robust0.recipes.tree import Leaf, Origin, Path, Tree, dotted

_SHOW = "`robust0 recipe show NAME` prints every key with its value"


def explain(problem: ValidationError, tree: Tree, recipe: str) -> RecipeError:
    """The first mistake that validation found, and how many more there are."""
    told = [_told(error, tree, recipe) for error in problem.errors(include_url=False)]
    message, hint = told[0]
    more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
    return RecipeError(message + more, hint, [text for text, _ in told])


def _told(error: ErrorDetails, tree: Tree, recipe: str) -> tuple[str, str]:
    """Message and hint of one mistake, with the place where it was written."""
    path, found = _walk(error, tree)
    message, hint = _words(error, dotted(path) or "the recipe", about(path))
    if isinstance(found, dict) and error["type"] == "union_tag_invalid":
        found = found.get("kind")
    # A mapping is the work of several layers, so only a single value is blamed on its line.
    written = found.origin if isinstance(found, Leaf) else Origin(recipe)
    return written.says(message), hint


def _walk(error: ErrorDetails, tree: Tree) -> tuple[Path, Tree | None]:
    """The key's path, without what pydantic adds to it, and what is there."""
    path: Path = ()
    here: Tree | None = tree
    for item in error["loc"]:
        if isinstance(here, dict):
            here = here.get(str(item))
        elif isinstance(here, list) and isinstance(item, int) and item < len(here):
            here = here[item]
        elif here is not None:
            continue
        path = (*path, str(item))
    return path, here


def _words(error: ErrorDetails, key: str, meaning: str) -> tuple[str, str]:
    """Message and hint of one mistake."""
    context = error.get("ctx", {})
    words = {
        "missing": ("is missing", f"add it to the recipe or give --set {key}=VALUE"),
        "extra_forbidden": ("is not a setting of this kind", _SHOW),
        "unexpected_keyword_argument": ("is not a setting of this kind", _SHOW),
        "union_tag_not_found": ("has no kind", f"add {key}.kind"),
        "union_tag_invalid": (
            f"has the kind {context.get('tag')!r}",
            f"one of {context.get('expected_tags')}",
        ),
        "value_error": (f"is refused: {context.get('error')}", _SHOW),
        "literal_error": (
            f"is {_short(error['input'])}",
            f"it must be {context.get('expected')}",
        ),
    }
    said = error["msg"].removeprefix("Input should be ")
    usual = (
        f"must be {said}, got {_short(error['input'])}",
        f"{key}: {meaning}" if meaning else _SHOW,
    )
    message, hint = words.get(error["type"], usual)
    return f"{key} {message}", hint


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
