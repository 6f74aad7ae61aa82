"""Options that the parts of a study share."""

from pathlib import Path
from typing import Annotated

import typer

from robust0.cli.audit import EffortName
from robust0.cli.data import SplitName

_ATTACK = (
    "training (the model's own), one-step, multi-step, clean or an attack of a battery; settings "
    "after commas: training,alpha=0.25 or sparse-rs,eps=20"
)
Models = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL", help="Checkpoints, run directories or zoo ids."),
]
Model = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL", help="A checkpoint, a run directory or a zoo id; several."),
]
Attacks = Annotated[
    list[str] | None, typer.Option("--attack", help=f"{_ATTACK}. Default: training. Repeatable.")
]
Attack = Annotated[str, typer.Option("--attack", help=f"{_ATTACK}.")]
Second = Annotated[str, typer.Option("--against", help="The second attack; as --attack.")]
SecondOrAudit = Annotated[
    str | None,
    typer.Option("--against", help="The second attack; as --attack. Default: guided-swap."),
]
Eps = Annotated[
    int | None, typer.Option(min=1, help="Budget of all attacks; default: the model's own.")
]
Unit = Annotated[
    str | None,
    typer.Option(
        metavar="UNIT",
        help="What --eps counts: pixel (default), feature, row, column or patch:SIZE.",
    ),
]
Effort = Annotated[EffortName, typer.Option(help="How long attacks of a battery search.")]
Images = Annotated[int, typer.Option(min=1, help="How many images.")]
Split = Annotated[SplitName, typer.Option(help="Training or test images.")]
Data = Annotated[
    str | None, typer.Option(help="cifar10, sample, folder:PATH ...; default: the checkpoint's.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of attacks, directions and start vectors.")]
Audit = Annotated[
    Path | None, typer.Option(metavar="RUN_DIR", help="A run of robust0 audit on the same model.")
]
StudyOut = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="DIR", help="The study's folder.")
]
