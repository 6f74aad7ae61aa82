"""Where recipes, zoo cards, caches and the user's settings live, in a wheel and in a checkout."""

import os
from importlib.resources import files
from pathlib import Path

import platformdirs

from robust0.errors import Robust0Error
from robust0.files import at_home


def shipped(folder: str) -> Path:
    """The shipped ``recipes`` or ``model_zoo`` folder, of a wheel or of a checkout."""
    package = Path(str(files("robust0")))
    for candidate in (package / "_data" / folder, package.parent / folder):
        if candidate.is_dir():
            return candidate
    raise Robust0Error(
        f"the shipped folder {folder!r} is missing from this installation",
        "reinstall robust0: pip install --force-reinstall robust0",
    )


def cache_dir() -> Path:
    """Where downloads are kept: $ROBUST0_CACHE, else the platform's cache folder."""
    override = os.environ.get("ROBUST0_CACHE")
    return at_home(override) if override else platformdirs.user_cache_path("robust0")


def config_file() -> Path:
    """The user's settings: $ROBUST0_CONFIG, else config.yaml in the platform's config folder."""
    override = os.environ.get("ROBUST0_CONFIG")
    if override:
        return at_home(override)
    return platformdirs.user_config_path("robust0") / "config.yaml"
