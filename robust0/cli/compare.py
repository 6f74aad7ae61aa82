"""``robust0 compare``: audits or certificates side by side, image by image."""

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
    form: Form = OutputFormat.AUTO,
) -> None:
    """Compare audits or certificates on the images they share; each against the first.

    Shows every attack and ensemble at every common budget, or certified accuracy at every radius,
    the paired difference with its 95 % interval, and the images that only one survives. Decides
    nothing: robust0 gate does.
    """
    from robust0.commands.compare import compare_sources
    from robust0.views.compare import show_comparison

    with output.transfer_bars() as show:
        found = compare_sources(subjects, show)
    show_comparison(found.results, form)
