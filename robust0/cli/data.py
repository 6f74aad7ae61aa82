"""``robust0 data``: which datasets there are, bringing one here, and what one holds."""

import time
from enum import StrEnum
from typing import Annotated

import typer

from robust0.cli import completions
from robust0.cli.helping import examples
from robust0.cli.options import DataDir, Form
from robust0.views import output
from robust0.views.output import OutputFormat
from robust0.views.tables import mapping, table

app = typer.Typer(help="List, fetch and describe datasets.", no_args_is_help=True)


class SplitName(StrEnum):
    """A split of a dataset."""

    TRAIN = "train"
    TEST = "test"


NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A name from `data list`, folder:PATH or npz:PATH.",
        autocompletion=completions.datasets,
    ),
]


@app.command("list", epilog=examples("robust0 data list"))
def list_datasets(output_format: Form = OutputFormat.AUTO) -> None:
    """List the datasets known by name."""
    from robust0.data.catalogue import DATASETS
    from robust0.data.datasets import in_cache

    rows = [
        {
            "name": spec.name,
            "classes": spec.classes,
            "size": f"{spec.image_size}x{spec.image_size}",
            "train": spec.train_images,
            "test": spec.test_images,
            "flips": spec.flips,
            "ready": in_cache(spec.name),
            "description": spec.description,
        }
        for spec in DATASETS.values()
    ]
    table("datasets", rows, output_format, spare=("flips", "train", "test"))
    output.note("also: folder:PATH (root/class/image) and npz:PATH (arrays images and labels)")


@app.command("pull", epilog=examples("robust0 data pull cifar10"))
def pull(
    name: NameArgument,
    data_dir: DataDir = None,
    output_format: Form = OutputFormat.AUTO,
) -> None:
    """Fetch a dataset into the cache or --data-dir, resuming and verifying."""
    from robust0.data.datasets import open_dataset
    from robust0.data.datasets import pull_data as pull_dataset

    started = time.monotonic()
    transferred = 0
    with output.transfer_bars() as show:
        for event in pull_dataset(name, data_dir):
            show(event)
            transferred = max(transferred, event.done)
    data = open_dataset(name, "test", data_dir=data_dir, fetch_missing=False)
    values = {
        "name": name,
        "source": data.source,
        "fetched": transferred > 0,
        "seconds": round(time.monotonic() - started, 1),
    }
    mapping(f"{name} is here and verified", values, output_format)


@app.command("info", epilog=examples("robust0 data info sample"))
def info(
    name: NameArgument,
    split: Annotated[SplitName, typer.Option(help="The split to describe.")] = SplitName.TEST,
    data_dir: DataDir = None,
    output_format: Form = OutputFormat.AUTO,
) -> None:
    """Describe a dataset that is here: counts, classes, fingerprint, checksums."""
    from robust0.data.datasets import open_dataset

    data = open_dataset(name, split.value, data_dir=data_dir, fetch_missing=False)
    channels, height, width = data.image_shape
    counts = data.labels.bincount(minlength=len(data.class_names)).tolist()
    values: dict[str, object] = {
        "name": data.name,
        "split": data.split,
        "images": len(data),
        "image_size": f"{channels}x{height}x{width}",
        "classes": len(data.class_names),
        "class_names": data.class_names,
        "images_per_class": f"{min(counts)} to {max(counts)}",
        "fingerprint": data.fingerprint,
        "source": data.source,
    }
    values |= {f"{part}_sha256": digest for part, digest in data.checksums().items()}
    mapping(f"{data.name} ({data.split})", values, output_format)
