"""``robust0 compare``: audits or certificates side by side, image by image."""

from pathlib import Path
from typing import Annotated

import typer

from robust0.cli import completions
from robust0.cli.options import Form
from robust0.views import output
from robust0.views.output import OutputFormat


def compare(
    subjects: Annotated[
        list[str],
        typer.Argument(
            metavar="A B ...",
            help="Two or more: run directories of audit or certify, baselines, or zoo ids.",
            autocompletion=completions.zoo_ids,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Write compare.html, compare.json and the curves as PNG and SVG there.",
        ),
    ] = None,
    form: Form = OutputFormat.AUTO,
) -> None:
    """Compare audits or certificates on the images they share; each against the first.

    Shows every attack and ensemble at every common budget, or certified accuracy at every radius,
    the paired difference with its 95 % interval, and the images that only one survives. Decides
    nothing: robust0 gate does.
    """
    from robust0.commands.compare import compare_sources
    from robust0.views.compare import show_comparison
    from robust0.writers.compare import check_folder, write_comparison

    if out is not None:
        check_folder(out)
    with output.transfer_bars() as show:
        found = compare_sources(subjects, show)
    paths = [] if out is None else write_comparison(out, found.results, found.sides)
    show_comparison(found.results, form)
    for path in paths:
        output.note(f"wrote {path}")
