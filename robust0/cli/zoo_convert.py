"""``robust0 zoo convert``: old weights made into checkpoints."""

import json
from pathlib import Path
from typing import Annotated

import typer

from robust0.architectures import check_architecture
from robust0.errors import ModelError
from robust0.views import output


def convert(
    source: Annotated[Path, typer.Argument(help="A pickled state dict (.pth, .pt).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .safetensors file to write.")],
    arch: Annotated[str, typer.Option(help="The network, a timm name, e.g. preact_resnet18.")],
    classes: Annotated[int, typer.Option(help="How many classes it knows.")] = 10,
    image_size: Annotated[int, typer.Option(help="Side of its square images.")] = 32,
    channels: Annotated[int, typer.Option(help="Colour channels of its images.")] = 3,
    arch_args: Annotated[
        str, typer.Option(metavar="JSON", help='Its other arguments, e.g. {"patch_size": 2}.')
    ] = "{}",
    dataset: Annotated[str | None, typer.Option(help="What it was trained on.")] = None,
    mean: Annotated[str | None, typer.Option(metavar="M,M,M", help="Its input mean.")] = None,
    std: Annotated[
        str | None, typer.Option(metavar="S,S,S", help="Its input standard deviation.")
    ] = None,
) -> None:
    """Make a safetensors checkpoint from a pickled state dict.

    The pickle is opened with weights_only=True in a process of its own; no other command reads
    pickles.
    """
    arguments, means, deviations = (
        _arguments(arch_args), _numbers("--mean", mean), _numbers("--std", std)
    )  # fmt: skip
    check_architecture(arch)
    if not source.is_file():
        raise ModelError(f"there is no file {source}", "give the path of a .pth or .pt file")
    output.loading("zoo convert")
    from robust0.models.adapt import adaptation_plan
    from robust0.models.convert import convert as convert_file

    chosen = adaptation_plan(
        arch,
        image_shape=(channels, image_size, image_size),
        classes=classes,
        args=arguments,
        mean=means,
        std=deviations,
        adapt=False,
    )
    digest = convert_file(source, out, chosen.spec, dataset=dataset)
    output.note(f"wrote {out}, sha256 {digest}")


def _arguments(text: str) -> dict[str, object]:
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise typer.BadParameter(f"--arch-args must be a JSON object, got {text!r}")
    return values


def _numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{name} must be numbers with commas, got {text!r}") from None
