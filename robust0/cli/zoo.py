"""``robust0 zoo``: released checkpoints."""

import typer

app = typer.Typer(help="Released checkpoints.", no_args_is_help=True)
