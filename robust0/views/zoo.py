"""A card of the zoo, drawn: what it is, its accuracy over budgets, where the numbers come from."""

import csv
import sys
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from robust0 import wording
from robust0.records import CurvePoint, Unit
from robust0.units import counted
from robust0.views.output import OutputFormat, out, text_out
from robust0.views.tables import mapping

_BAR = 40  # cells of 100 %


def show_card(
    title: str,
    facts: Mapping[str, object],
    curve: Sequence[CurvePoint],
    unit: Unit,
    form: OutputFormat,
) -> None:
    """Named facts, then the curve: bars, or tab-separated lines."""
    form = form.resolved()
    mapping(title, facts, form)
    if form is OutputFormat.TSV:
        writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
        for point in curve:
            robust = point.robust
            name = f"at most {counted(point.budget, unit)}"
            writer.writerow((name, f"{wording.percent(robust)} ({wording.interval(robust)})"))
        return
    console = out() if form is OutputFormat.RICH else text_out()
    drawn = Table.grid(padding=(0, 2))
    for justify in ("right", "right", "left"):
        drawn.add_column(justify=justify)
    room = max(4, min(_BAR, console.width - 40))
    for point in curve:
        bar = Text("━" * max(1, round(room * point.robust.share)), style="cyan")
        name = counted(point.budget, unit)
        drawn.add_row(name, wording.percent(point.robust), wording.interval(point.robust), bar)
    console.print()
    console.print(Text("accuracy over budgets (an upper bound)", style="bold"))
    console.print(drawn)
