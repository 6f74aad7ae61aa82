"""Options that several commands share, said once."""

from pathlib import Path
from typing import Annotated

import typer

from robust0.views.output import OutputFormat, ReportFormat


def _folder(text: str) -> Path:
    """A path that is not empty: an empty one would mean the current folder."""
    if not text.strip():
        raise typer.BadParameter("the path is empty")
    return Path(text)


Form = Annotated[OutputFormat, typer.Option("--output-format", help="How data are written.")]
ReportForm = Annotated[
    ReportFormat, typer.Option("--output-format", help="How the result is written.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
DataDir = Annotated[
    Path | None,
    typer.Option(parser=_folder, help="Where the dataset lies; default: the cache, then download."),
]
Factory = Annotated[
    str | None,
    typer.Option(metavar="PACKAGE.MODULE:CALLABLE", help="Your own network."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", parser=_folder, metavar="RUN_DIR", help="Run directory."),
]
Resume = Annotated[
    Path | None,
    typer.Option(parser=_folder, metavar="RUN_DIR", help="Go on with an interrupted run."),
]
Recheck = Annotated[
    Path | None,
    typer.Option(
        parser=_folder,
        metavar="RUN_DIR",
        help="Only try the stored hits of a run on its model again.",
    ),
]
Compile = Annotated[bool, typer.Option("--compile", help="Use torch.compile.")]
FailUnder = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=PERCENT", help="Exit 1 below this; e.g. saa=60; repeatable."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(metavar="FLAG", help="Accept this fatal flag instead of exit code 4; repeatable."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change any value of the recipe; repeatable."),
]
Zoo = Annotated[
    str | None,
    typer.Option(
        "--zoo",
        metavar="ZOO",
        help="A folder, an https:// address, hf-hub:OWNER/REPO@COMMIT or shipped; "
        "default: ROBUST0_ZOO, then zoo: in the settings, then shipped.",
    ),
]
