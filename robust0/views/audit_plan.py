"""An audit before it starts: what will run, on what, and what it may cost."""

import json
import sys
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from robust0.events import AuditPlanned
from robust0.views.harden import clock
from robust0.views.output import ReportFormat, Verbosity, err, out, warn
from robust0.wording import tidy


def show_plan(event: AuditPlanned, form: ReportFormat, *, as_data: bool = False) -> None:
    """The plan, beside the data on stderr, or on stdout as what a dry run is for."""
    for warning in event.warnings:
        warn(tidy(warning, 400))
    if Verbosity.quiet and not as_data:
        return
    if as_data and form is ReportFormat.JSON:
        sys.stdout.write(json.dumps(asdict(event), indent=2, ensure_ascii=False) + "\n")
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in event.about:
        grid.add_row(name, Text(tidy(value)))
    grid.add_row("attacks", Text(_attacks(event)))
    processes = f" with {event.processes} processes" if event.processes > 1 else ""
    grid.add_row(
        "speed",
        f"{event.forwards_per_second:,.0f} forwards/s, "
        f"{event.gradients_per_second:,.0f} gradients/s{processes}",
    )
    cost = duration(event.seconds)
    grid.add_row("cost", f"at most about {cost}; images that fall early cost less")
    for note in event.notes:
        grid.add_row("note", Text(tidy(note, 400)))
    (out() if as_data else err()).print(grid)


def _attacks(event: AuditPlanned) -> str:
    """Each attack with the most passes an image can cost it at the largest budget."""
    most: dict[str, int] = {}
    for cost in event.costs:
        most.setdefault(cost.attack, cost.passes)
    named = ", ".join(f"{tidy(name)} ({passes:,})" for name, passes in most.items())
    return f"{named}: passes (forward or backward) per image, at most"


def duration(seconds: float) -> str:
    """Roughly, since an estimate is rough."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{clock(seconds)} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
