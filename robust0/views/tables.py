"""Rows and named values on stdout: drawn, as aligned text, tab-separated, or as JSON."""

import csv
import json
import sys
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from robust0.views.output import OutputFormat, out, text_out, visible

_SHORT = 24  # a cell of at most so many letters stays on one line
_GAP = 2  # between columns


def table(
    title: str,
    rows: Sequence[Mapping[str, object]],
    form: OutputFormat,
    *,
    spare: Sequence[str] = (),
) -> None:
    """Show rows with equal keys; on a narrow terminal without some columns, or line by line.

    Args:
        title: above a drawn table.
        rows: their first column names them and is never broken.
        form: how.
        spare: columns that a narrow terminal does without, in this order.
    """
    form, columns = form.resolved(), list(rows[0]) if rows else []
    if form is OutputFormat.JSON:
        _json(rows)
    elif form is OutputFormat.TSV:
        writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([cell(row[name]) for name in columns] for row in rows)
    else:
        _draw(title, rows, out() if form is OutputFormat.RICH else text_out(), spare)


def mapping(title: str, values: Mapping[str, object], form: OutputFormat) -> None:
    """Show named values: an aligned list, tab-separated lines, or a JSON object."""
    form = form.resolved()
    if form is OutputFormat.JSON:
        _json(values)
    elif form is OutputFormat.TSV:
        writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
        writer.writerows((name, cell(value)) for name, value in values.items())
    else:
        console = out() if form is OutputFormat.RICH else text_out()
        console.print(Text(title, style="bold"))
        console.print(_pairs(values))


def _draw(
    title: str, rows: Sequence[Mapping[str, object]], console: Console, spare: Sequence[str]
) -> None:
    columns = list(rows[0]) if rows else []
    for left in range(len(spare) + 1):
        kept = [name for name in columns if name not in spare[:left]]
        widths = _widths(rows, kept, console.width)
        if widths is not None:
            console.print(_table(title, rows, widths))
            return
    console.print(Text(title, style="bold"))
    for row in rows:
        console.print(Text(cell(row[columns[0]]), style="bold"), soft_wrap=True)
        console.print(_pairs({f"  {name}": row[name] for name in columns[1:]}))


def _widths(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str], room: int
) -> dict[str, int] | None:
    """Columns that break no word and no short cell, the rest shared out; None: there is no room."""
    least, most = dict[str, int](), dict[str, int]()
    for place, name in enumerate(columns):
        cells = [cell(row[name]) for row in rows]
        longest = max(map(cell_len, cells), default=0)
        words = [word for text in (*cells, name) for word in text.split()]
        whole = longest if place == 0 or longest <= _SHORT else 0
        least[name] = max(whole, *map(cell_len, words))
        most[name] = max(longest, cell_len(name))
    spare = room - sum(least.values()) - _GAP * len(columns)
    if spare < 0:
        return None
    for name in sorted(columns, key=lambda name: most[name] - least[name]):
        given = min(spare, most[name] - least[name])
        least[name], spare = least[name] + given, spare - given
    return least


def _table(title: str, rows: Sequence[Mapping[str, object]], widths: Mapping[str, int]) -> Table:
    drawn = Table(title=escape(title), title_justify="left", header_style="bold", box=None)
    for name, width in widths.items():
        numeric = all(isinstance(row[name], int | float | None) for row in rows)
        justify: JustifyMethod = "right" if numeric else "left"
        drawn.add_column(escape(name), justify=justify, overflow="fold", width=width)
    for row in rows:
        drawn.add_row(*(Text(cell(row[name])) for name in widths))
    return drawn


def _pairs(values: Mapping[str, object]) -> Table:
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in values.items():
        drawn.add_row(escape(name), Text(cell(value)))
    return drawn


def _json(value: object) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    sys.stdout.write(visible(text) + "\n")


def cell(value: object) -> str:
    """A value as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return visible(", ".join(str(item) for item in value))
    return "-" if value is None else visible(str(value))
