"""A comparison as files: a page, everything as JSON, the curves as pictures."""

import json
from collections.abc import Sequence
from pathlib import Path

from robust0.comparing.sides import Side
from robust0.comparison import ComparisonResults
from robust0.errors import RunError
from robust0.files import write_text
from robust0.writers.compare_html import render_comparison
from robust0.writers.compare_plot import write_curves

JSON = "compare.json"
PAGE = "compare.html"
PICTURES = ("curves.png", "curves.svg")


def check_folder(folder: Path) -> None:
    """Refuse a place that holds something else than a comparison, before anything is written."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file", "choose a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / JSON).is_file():
        raise RunError(f"{folder} holds other files than a comparison", "choose a new folder")


def write_comparison(folder: Path, results: ComparisonResults, sides: Sequence[Side]) -> list[Path]:
    """Write every file, each whole or not at all; their paths. An older comparison is replaced."""
    check_folder(folder)
    texts = {
        PAGE: render_comparison(results, sides),
        JSON: json.dumps(results.document(), indent=1, sort_keys=True) + "\n",
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
        for name in PICTURES:
            write_curves(results, folder / name)
    except OSError as problem:
        raise RunError(
            f"cannot write to {folder}: {problem.strerror or problem}", "choose a writable folder"
        ) from problem
    return [folder / name for name in (*texts, *PICTURES)]
