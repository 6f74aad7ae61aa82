"""``robust0 study``: why one-step l0 training collapses, in tables and pictures."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robust0.cli.audit import EffortName
from robust0.cli.data import SplitName
from robust0.cli.options import DataDir, Device, Factory, Form
from robust0.cli.study_options import (
    Attack,
    Attacks,
    Audit,
    Data,
    Effort,
    Eps,
    Images,
    Model,
    Models,
    Second,
    SecondOrAudit,
    Seed,
    Split,
    StudyOut,
    Unit,
)
from robust0.cli.study_run import asked_for, finish, run_part
from robust0.views.output import OutputFormat

if TYPE_CHECKING:
    from robust0.study.run import StudyJob
    from robust0.study.subjects import StudyScope

app = typer.Typer(
    help="Spectra, landscapes, overlaps, gradients and training curves of hardened models.",
    epilog="The same command with the same -o goes on where it was interrupted. Parts may share "
    "one -o; study.html then shows them all.",
    no_args_is_help=True,
)


class WhichName(StrEnum):
    """Which eigenvalues."""

    LARGEST = "largest"
    MAGNITUDE = "magnitude"


class DirectionName(StrEnum):
    """The directions of a landscape."""

    EIGENVECTORS = "eigenvectors"
    RANDOM = "random"


@app.command()
def spectrum(
    models: Models = None,
    attack: Attacks = None,
    top: Annotated[int, typer.Option(min=1, help="How many eigenvalues.")] = 10,
    which: Annotated[WhichName, typer.Option(help="By value or by magnitude.")] = WhichName.LARGEST,
    products: Annotated[int, typer.Option(help="The most Hessian products per spectrum.")] = 60,
    density: Annotated[
        int, typer.Option(min=0, help="Lanczos steps for the density of the whole spectrum.")
    ] = 0,
    probes: Annotated[int, typer.Option(min=1, help="Random vectors for the density.")] = 2,
    images: Images = 1000,
    split: Split = SplitName.TRAIN,
    eps: Eps = None,
    unit: Unit = None,
    effort: Effort = EffortName.QUICK,
    data: Data = None,
    data_dir: DataDir = None,
    factory: Factory = None,
    seed: Seed = 0,
    out: StudyOut = None,
    device: Device = "auto",
    form: Form = OutputFormat.AUTO,
) -> None:
    """Top eigenvalues of the Hessian of the adversarial loss in the weights.

    robust0 study spectrum A B --attack training --attack clean
    """

    def job(scope: "StudyScope") -> "StudyJob":
        from robust0.study.curvature_jobs import spectrum_job

        return spectrum_job(
            scope, count=top, which=which.value, products=products, density_steps=density,
            density_probes=probes,
        )  # fmt: skip

    asked = asked_for(
        models, tuple(attack or ("training",)), images, split, eps, unit, effort, data, data_dir,
        factory, seed,
    )  # fmt: skip
    run_part("spectrum", asked, job, out, device, form)


@app.command()
def landscape(
    models: Models = None,
    attack: Attack = "training",
    grid: Annotated[int, typer.Option(help="Points per side, an odd number.")] = 11,
    span: Annotated[float, typer.Option(help="From the middle to the edge.")] = 0.5,
    directions: Annotated[
        DirectionName, typer.Option(help="Top two eigenvectors, or filter-normalised random ones.")
    ] = DirectionName.EIGENVECTORS,
    frozen: Annotated[
        bool, typer.Option("--frozen", help="Keep the perturbations of the middle everywhere.")
    ] = False,
    images: Images = 256,
    split: Split = SplitName.TRAIN,
    eps: Eps = None,
    unit: Unit = None,
    effort: Effort = EffortName.QUICK,
    data: Data = None,
    data_dir: DataDir = None,
    factory: Factory = None,
    seed: Seed = 0,
    out: StudyOut = None,
    device: Device = "auto",
    form: Form = OutputFormat.AUTO,
) -> None:
    """The loss on a grid around the weights, the attack run anew at every point.

    robust0 study landscape A B --grid 11 --span 0.5
    """

    def job(scope: "StudyScope") -> "StudyJob":
        from robust0.study.curvature_jobs import landscape_job

        return landscape_job(
            scope, points=grid, span=span, directions=directions.value, frozen=frozen
        )

    asked = asked_for(
        models, (attack,), images, split, eps, unit, effort, data, data_dir, factory, seed
    )
    run_part("landscape", asked, job, out, device, form)


@app.command()
def overlap(
    models: Model = None,
    attack: Attack = "training",
    against: SecondOrAudit = None,
    audit: Audit = None,
    images: Images = 200,
    split: Split = SplitName.TEST,
    eps: Eps = None,
    unit: Unit = None,
    effort: Effort = EffortName.QUICK,
    data: Data = None,
    data_dir: DataDir = None,
    factory: Factory = None,
    seed: Seed = 0,
    out: StudyOut = None,
    device: Device = "auto",
    form: Form = OutputFormat.AUTO,
) -> None:
    """Distance and shared locations of two attacks' perturbations, beside the chance level.

    With --audit the second attack is the strongest of that run.

    robust0 study overlap MODEL --against sparse-rs
    """
    from robust0.errors import RecipeError

    if audit is not None and against is not None:
        raise RecipeError(
            "--against and --audit both name the second attack", "leave out one of them"
        )

    def job(scope: "StudyScope") -> "StudyJob":
        from robust0.study.attack_jobs import overlap_job

        return overlap_job(scope)

    asked = asked_for(
        models, (attack,) if audit else (attack, against or "guided-swap"), images, split, eps,
        unit, effort, data, data_dir, factory, seed, audit=audit, against_audit=audit is not None,
    )  # fmt: skip
    run_part("overlap", asked, job, out, device, form)


@app.command()
def interpolate(
    models: Model = None,
    attack: Attack = "one-step",
    points: Annotated[
        str, typer.Option(help="Shares of the perturbation.")
    ] = "0,0.2,0.4,0.6,0.8,1",
    audit: Audit = None,
    images: Images = 500,
    split: Split = SplitName.TEST,
    eps: Eps = None,
    unit: Unit = None,
    effort: Effort = EffortName.QUICK,
    data: Data = None,
    data_dir: DataDir = None,
    factory: Factory = None,
    seed: Seed = 0,
    out: StudyOut = None,
    device: Device = "auto",
    form: Form = OutputFormat.AUTO,
) -> None:
    """Accuracy along x + share * perturbation, beside the numbers of an audit.

    The budget is that of the evaluation; the audit is --audit's, or that of a zoo model's card.

    robust0 study interpolate MODEL --audit RUN_DIR
    """
    shares = _numbers(points)

    def job(scope: "StudyScope") -> "StudyJob":
        from robust0.study.attack_jobs import interpolate_job

        return interpolate_job(scope, shares)

    asked = asked_for(
        models, (attack,), images, split, eps, unit, effort, data, data_dir, factory, seed,
        audit=audit, evaluation=True,
    )  # fmt: skip
    run_part("interpolate", asked, job, out, device, form)


@app.command()
def gradients(
    models: Models = None,
    attack: Attack = "one-step",
    against: Second = "multi-step",
    batch: Annotated[int, typer.Option(min=1, help="Images per gradient.")] = 128,
    per_image: Annotated[
        bool, typer.Option("--per-image/--no-per-image", help="Compare image by image too.")
    ] = True,
    images: Images = 256,
    split: Split = SplitName.TRAIN,
    eps: Eps = None,
    unit: Unit = None,
    effort: Effort = EffortName.QUICK,
    data: Data = None,
    data_dir: DataDir = None,
    factory: Factory = None,
    seed: Seed = 0,
    out: StudyOut = None,
    device: Device = "auto",
    form: Form = OutputFormat.AUTO,
) -> None:
    """Distance between the weight gradients under two attacks, per batch and per image.

    A run directory stands for all checkpoints in it: the distances over its epochs.

    robust0 study gradients MODEL --against multi-step,steps=100
    """

    def job(scope: "StudyScope") -> "StudyJob":
        from robust0.study.attack_jobs import gradients_job

        return gradients_job(scope, batch=batch, per_image=per_image)

    asked = asked_for(
        models, (attack, against), images, split, eps, unit, effort, data, data_dir, factory, seed,
        checkpoints=True,
    )  # fmt: skip
    run_part("gradients", asked, job, out, device, form)


@app.command()
def training(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run directories of robust0 harden.")
    ],
    out: StudyOut = None,
    form: Form = OutputFormat.AUTO,
) -> None:
    """Curves of finished training runs, the moment of catastrophic overfitting marked.

    robust0 study training with-early-stopping without-early-stopping
    """
    from robust0.commands.study_runs import recorded_runs
    from robust0.study.training import training_job

    finish(training_job(recorded_runs(runs)), out, form)


def _numbers(text: str) -> tuple[float, ...]:
    from robust0.errors import RecipeError

    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise RecipeError(f"--points must be numbers, got {text!r}", "e.g. 0,0.5,1") from None
