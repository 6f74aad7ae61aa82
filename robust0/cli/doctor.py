"""``robust0 doctor``: versions, device, cache, settings, and what can be reached."""

from typing import Annotated

import typer

from robust0.cli.options import Form
from robust0.views.output import OutputFormat, loading
from robust0.views.tables import mapping


def doctor(
    network: Annotated[
        bool, typer.Option("--network/--no-network", help="Ask the hosts of data and weights.")
    ] = True,
    form: Form = OutputFormat.AUTO,
) -> None:
    """Show what robust0 runs on and what it can reach; put this into a bug report."""
    from robust0.commands.doctor import findings

    loading("doctor")
    mapping("robust0 doctor", dict(findings(network=network)), form)
