"""``robust0 harden``: train or fine-tune a network against sparse attacks."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from robust0.cli import completions
from robust0.cli.options import Compile, DataDir, Device, Factory, Out, Overrides, Resume

if TYPE_CHECKING:
    from pathlib import Path

    from robust0.commands.harden import PreparedRun
    from robust0.distributed import World


def harden(
    model: Annotated[
        str | None,
        typer.Option(
            help="A timm name, e.g. convnext_tiny; default: the recipe's.",
            autocompletion=completions.networks,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="cifar10, cifar100, gtsrb, imagenet100, sample, folder:PATH, npz:PATH.",
            autocompletion=completions.datasets,
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="A recipe's name or file; default: the data's own.",
            autocompletion=completions.recipes,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="fast-ls-l0, sparse-at, strades-t+s, ...", autocompletion=completions.methods
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the training attack.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.")] = None,
    train_images: Annotated[
        int | None, typer.Option(help="Train on this many images only.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step and process.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of weights, order, noise and attack.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="One run per seed, e.g. 0,1,2, and their mean and deviation.")
    ] = None,
    start_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Fine-tune this run, checkpoint or zoo id.",
            autocompletion=completions.zoo_ids,
        ),
    ] = None,
    factory: Factory = None,
    pretrained: Annotated[
        bool, typer.Option("--pretrained", help="Fine-tune timm's published weights.")
    ] = False,
    out: Out = None,
    resume: Resume = None,
    device: Device = "auto",
    data_dir: DataDir = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that decode image files; default: one per core.")
    ] = None,
    compile_: Compile = False,
    stop_on_co: Annotated[
        bool, typer.Option("--stop-on-co", help="End at the first sign of overfitting.")
    ] = False,
    keep_epochs: Annotated[
        bool, typer.Option("--keep-epochs", help="Keep a checkpoint of every epoch, for studies.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run and how long; write nothing.")
    ] = False,
    overrides: Overrides = None,
) -> None:
    """Train or fine-tune a network with Fast-LS-l0 or any of its ablations.

    The run directory holds the weights, the curves and what it needs to resume.
    """
    from robust0.commands.early import check_harden
    from robust0.commands.harden_recipe import HardenOptions, parse_seeds
    from robust0.views.output import OutputFormat, loading, note, transfer_bars
    from robust0.views.tables import table

    options = HardenOptions(
        model=model, data=data, recipe=recipe, method=method, steps=steps, epochs=epochs,
        train_images=train_images, batch_size=batch_size, seed=seed, seeds=parse_seeds(seeds),
        start_from=start_from,
        factory=factory, pretrained=pretrained, out=out, resume=resume, data_dir=data_dir,
        workers=workers, compile=compile_, stop_on_co=stop_on_co, keep_epochs=keep_epochs,
        overrides=tuple(overrides or ()),
    )  # fmt: skip
    check_harden(options, device)
    loading("harden")
    from robust0.commands.harden import prepare
    from robust0.commands.harden_seeds import begin_seeds, runs_of, summarise_seeds
    from robust0.device import resolve_device
    from robust0.distributed import local_device, world
    from robust0.views.harden_plan import show_training_plan

    place = local_device(resolve_device(device))
    with world(place) as group:
        wanted = runs_of(options, group)
        begun = wanted.begun
        for one in wanted.runs:
            with transfer_bars() as show:
                prepared = prepare(one, place, group, show, begun=begun)
            if prepared.plan is not None and group.leads:
                show_training_plan(prepared.plan, runs=len(wanted.runs), as_data=dry_run)
            if dry_run:
                return
            if wanted.folder is not None and not begun:
                if group.leads:
                    begin_seeds(wanted)
                prepared, begun = replace(prepared, resuming=True), True
            if wanted.folder is not None and group.leads:
                note(f"seed {prepared.job.seed}, in {prepared.job.folder}")
            _train(prepared, group, wanted.folder)
        if wanted.folder is not None and group.leads:
            table(
                f"{wanted.folder}: reserved images",
                summarise_seeds(wanted.folder),
                OutputFormat.AUTO,
            )


def _train(prepared: "PreparedRun", group: "World", together: "Path | None") -> None:
    """One run to its end, with its view and its curves."""
    from robust0.commands.harden import next_audit, opened
    from robust0.events import TrainFinished
    from robust0.runs.folder import read_lines
    from robust0.training.loop import run_training
    from robust0.training.tensorboard import Scalars
    from robust0.views.curves import draw_curves
    from robust0.views.harden import train_view
    from robust0.views.output import note
    from robust0.wording import shell

    job = prepared.job
    with opened(prepared, group):
        with train_view(silent=not group.leads) as view:
            scalars = Scalars(job.folder) if group.leads else None
            for event in run_training(job, group, resume=prepared.resuming):
                view.show(event)
                if scalars is not None:
                    scalars.show(event)
                if isinstance(event, TrainFinished) and event.interrupted is not None:
                    if together is not None and group.leads:
                        note(f"all seeds: {shell('harden', '--resume', together)}")
                    raise typer.Exit(128 + event.interrupted)
        if group.leads:
            draw_curves(
                read_lines(job.folder / "metrics.jsonl"), job.folder / "curves.png", job.title
            )
            note(f"curves: {job.folder / 'curves.png'}")
            note(f"next: {next_audit(job.folder)}")
