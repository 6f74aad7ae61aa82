"""A run directory never executes code: what it names must be named again on the command line."""

from collections.abc import Sequence
from pathlib import Path

from robust0.errors import RunError


def own_code(names: str | None, overrides: Sequence[str]) -> list[str]:
    """The references ``package.module:Name`` among names by commas and the values of ``--set``."""
    return [word for word in _words(names, overrides) if ":" in word]


def only_code(names: str | None, overrides: Sequence[str]) -> bool:
    """Whether nothing but references is named; anything else would be a setting."""
    return _words(names, overrides) == own_code(names, overrides)


def require_factory(folder: Path, kept: object, named: str | None) -> None:
    """Refuse to import a factory because a folder's own files say so."""
    if named == kept:
        return
    if kept is None:
        raise RunError(f"the run in {folder} was started without --factory", "leave it out")
    raise RunError(
        f"the run in {folder} wants to run the factory {kept}: code runs only if you name it "
        "yourself",
        f"if you trust it, add --factory {kept}",
    )


def _words(names: str | None, overrides: Sequence[str]) -> list[str]:
    words = [*(names or "").split(","), *(text.partition("=")[2] for text in overrides)]
    return [word.strip() for word in words if word.strip()]
