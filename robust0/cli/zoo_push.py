"""``robust0 zoo push``: a model to the Hugging Face hub."""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from robust0.cli import completions
from robust0.cli.options import Form, Zoo
from robust0.views import output
from robust0.views.output import OutputFormat
from robust0.views.tables import table

_WHAT = {
    "README.md": "the hub's model card, with the results",
    "config.json": "the network, for timm",
    "model.safetensors": "weights",
    "index.yaml": "makes the repository a zoo",
    ".report.json": "the audit",
    ".verdicts.json": "the audit, image by image",
    ".radii.json": "the certificate, image by image",
    ".yaml": "robust0's card",
}


def push(
    source: Annotated[
        str,
        typer.Argument(
            metavar="ID_OR_RUN",
            help="From zoo list, or a run directory of robust0 harden.",
            autocompletion=completions.zoo_ids,
        ),
    ],
    target: Annotated[str, typer.Argument(metavar="hf-hub:OWNER/REPO", help="Where to.")],
    audit: Annotated[
        Path | None, typer.Option("--audit", metavar="AUDIT_RUN", help="Of a run: its audit.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="CERTIFY_RUN", help="Of a run: its certificate.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--id", help="Of a run; default: data, method and network.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Of a run: one line about the model.")] = None,
    licence: Annotated[
        str | None, typer.Option(help="Of a run: of the weights; default: MIT.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Make the repository a private one.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write the folder, upload nothing.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Keep the files here; --dry-run: ./REPO."),
    ] = None,
    zoo: Zoo = None,
    form: Form = OutputFormat.AUTO,
) -> None:
    """Upload a model with its card, audit, certificate and a model card; prints its commit.

    The token comes from HF_TOKEN or from hf auth login.
    """
    from robust0.errors import ZooError
    from robust0.zoo.local import is_folder
    from robust0.zoo.upload import destination, require_token, upload

    repository = destination(target)
    of_run = {"--audit": audit, "--certificate": certificate, "--id": name, "--title": title}
    of_run["--licence"] = licence
    given = [option for option, value in of_run.items() if value is not None]
    if given and not is_folder(source):
        raise ZooError(f"{given[0]} is about a run, {source} is none", f"leave out {given[0]}")
    if out is None and dry_run:
        out = Path(repository.partition("/")[2])
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ZooError(f"{out} exists and is not empty", "choose another folder with -o")
    if not dry_run:
        require_token()
    output.loading("zoo push")
    from robust0.commands.zoo_add import Publication
    from robust0.commands.zoo_push import pack_model

    said = Publication(name, title, licence or "MIT", certificate=certificate)
    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with output.transfer_bars() as show:
            card = pack_model(
                source, repository, folder, zoo=zoo, audit=audit, said=said, progress=show
            )
        sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        if dry_run:
            rows = [
                {"file": file, "bytes": size, "what": _what(file)} for file, size in sizes.items()
            ]
            table(f"{folder}: {target} would hold", rows, form)
            output.note("nothing was uploaded")
            return
        total = sum(sizes.values())
        output.note(f"uploading {len(sizes)} files, {total / 1e6:.1f} MB, to {target} ...")
        commit = upload(folder, repository, private=private, message=f"robust0: {card.id}")
    output.note(f"load it in Python: robust0.load('{target}')")
    sys.stdout.write(f"{target}@{commit}\n")


def _what(file: str) -> str:
    return next((words for ending, words in _WHAT.items() if file.endswith(ending)), "")
