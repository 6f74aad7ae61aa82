"""``robust0 recipe check`` and ``robust0 zoo check``: faults of files, one line each."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from robust0.units import counted
from robust0.views import output

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", show_default=False)]


def check_recipes(files: Files) -> None:
    """Check recipes: keys, names and values; a line per fault, exit 2 if there is any."""
    from robust0.commands.check_files import recipe_faults

    _check(files, recipe_faults)


def check_zoo(files: Files) -> None:
    """Check cards and index.yaml against each other and the files beside them; exit 2 on faults."""
    from robust0.commands.check_files import zoo_faults

    _check(files, zoo_faults)


def _check(files: list[Path], faults: Callable[[Path], list[str]]) -> None:
    found = {path: faults(path) for path in dict.fromkeys(files)}
    for lines in found.values():
        sys.stdout.writelines(f"{output.visible(line)}\n" for line in lines)
    bad = [lines for lines in found.values() if lines]
    looked_at = counted(len(found), "file")
    if bad:
        output.note(f"{len(bad)} of {looked_at}: {counted(sum(map(len, bad)), 'fault')}")
        raise typer.Exit(2)
    output.note(f"{looked_at} without faults")
