"""Options that several commands share, said once."""

from pathlib import Path
from typing import Annotated

import typer

from robust0.views.output import OutputFormat

Form = Annotated[OutputFormat, typer.Option("--output-format", help="How data are written.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Where the dataset lies; default: the cache, then download.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change any value of the recipe; repeatable."),
]
