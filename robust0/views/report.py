"""The final report of an audit, on stdout: drawn to the width of the terminal, plain, or JSON."""

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from robust0 import wording
from robust0.records import AttackRow, BudgetResult, Report
from robust0.units import counted
from robust0.views.output import ReportFormat, out

_GAP = 2  # cells between columns
_ANSWERS = {wording.ensemble_name(name) for name in (wording.SAA, wording.WORST_CASE)}
_MEDIANS = "sites: median of the hits after giving back what they do not need; passes: median of "
_MEDIANS += "forwards and backwards per attacked image"


def show_report(report: Report, form: str) -> None:
    """Write a report to stdout as ``rich``, ``plain`` or ``json``; ``auto`` is one of the two."""
    match ReportFormat(form).resolved():
        case ReportFormat.JSON:
            sys.stdout.write(report.model_dump_json(by_alias=True, indent=1) + "\n")
        case ReportFormat.RICH:
            draw_report(report, out())
        case _:
            _plain(report)


def draw_report(report: Report, console: Console) -> None:
    """Draw a report to the console's width."""
    results = report.results
    _say(console, f"robust0 audit · {wording.subject(results)}", "bold")
    _say(console, wording.identity(results), "dim")
    _say(console, wording.choice(results), "dim")
    console.print()
    console.print(_numbers(report, console.width))
    for result in results.budgets:
        console.print()
        first = result is results.budgets[0]
        caption = "attacks" if len(results.budgets) == 1 else f"attacks, {_allowed(result)}"
        _say(console, f"{caption}: {wording.identity(results, result.budget)}", "bold")
        columns = _columns(report, result, seconds=first)
        for table in tables(columns, console.width):
            console.print(table)
        for row in result.attacks:
            if row.notes:
                _say(console, f"* {wording.tidy(row.name, 40)} {wording.notes(row)}", "dim")
    _say(console, _MEDIANS, "dim")
    console.print()
    _say(console, f"accuracy over budgets: {wording.identity(results)}", "bold")
    console.print(_curve(report, console.width))
    if results.flags:
        console.print()
    for flag in results.flags:
        label, style = ("unreliable: ", "bold red") if flag.fatal else ("! ", "bold yellow")
        text = f"{wording.tidy(flag.name)}: {wording.tidy(flag.message, 600)}"
        console.print(Text(label, style=style) + Text(text))
    if results.untested:
        console.print()
        _say(console, "not tested", "bold")
        for line in results.untested:
            console.print(_bullet(wording.tidy(line, 400)))
    console.print()
    for line in wording.meaning(results):
        _say(console, line, "")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of text; the first one names the rows."""

    head: str
    cells: tuple[str, ...]
    right: bool = True

    @property
    def width(self) -> int:
        """The cells it takes."""
        return max(Text(cell).cell_len for cell in (self.head, *self.cells))


def tables(columns: Sequence[Column], width: int) -> Iterator[Table]:
    """Columns in as few tables as the width allows; each begins with the names of the rows."""
    names, rest = columns[0], list(columns[1:])
    while rest:
        room = width - names.width
        part: list[Column] = []
        while rest and (not part or rest[0].width + _GAP <= room):
            room -= rest[0].width + _GAP
            part.append(rest.pop(0))
        yield _table([names, *part])


def _table(columns: Sequence[Column]) -> Table:
    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="dim", pad_edge=False)
    for column in columns:
        table.add_column(column.head, justify="right" if column.right else "left", overflow="fold")
    for cells in zip(*(column.cells for column in columns), strict=True):
        # The ensembles are the answer; attacks lead to it.
        style = "bold" if cells[0] in _ANSWERS else ""
        if any(cells[1:]):
            table.add_row(*(Text(cell) for cell in cells), style=style)
    return table


def _columns(report: Report, result: BudgetResult, *, seconds: bool) -> list[Column]:
    rows, unions = result.attacks, result.ensembles
    blank = ("",) * len(unions)
    names = [f"{wording.tidy(row.name, 40)}{'*' if row.notes else ''}" for row in rows]
    names += [wording.ensemble_name(row.name) for row in unions]
    shares = [*(row.robust for row in rows), *(row.robust for row in unions)]
    columns = [
        Column("attack", tuple(names), right=False),
        Column("robust", tuple(wording.percent(share) if share else "-" for share in shares)),
        Column("95 %", tuple(wording.interval(share) if share else "-" for share in shares)),
    ]
    columns.append(Column("attacked", (*(wording.number(r.attacked) for r in rows), *blank)))
    broken = [row.broken for row in rows]
    broken += [report.results.clean.count - row.robust.count for row in unions]
    columns += [
        Column("broken", tuple(wording.number(value) for value in broken)),
        Column("only it", (*(wording.number(row.only) for row in rows), *blank)),
        Column("sites", (*(wording.number(row.median_distance) for row in rows), *blank)),
        Column("passes", (*(wording.number(row.median_passes) for row in rows), *blank)),
    ]
    if seconds:
        spent = report.run.attack_seconds
        cells = [wording.seconds(spent.get(row.name)) for row in rows]
        columns.append(Column("seconds", (*cells, *blank)))
    return columns


def _numbers(report: Report, width: int) -> RenderableType:
    results = report.results
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    for justify in ("left", "right", "left"):
        grid.add_column(justify=justify)
    grid.add_row("clean", wording.percent(results.clean), wording.interval(results.clean))
    for result in results.budgets:
        for name, robust in wording.headline(result):
            label = f"{name}, {_allowed(result)}" if width >= 50 else f"{name} @{result.budget}"
            share = Text(f"≤ {wording.percent(robust)}", style="bold")
            grid.add_row(label, share, wording.interval(robust))
    return grid


def _curve(report: Report, width: int) -> RenderableType:
    results = report.results
    wanted = set(wording.shown_budgets(results))
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    for justify in ("right", "right", "left"):
        grid.add_column(justify=justify)
    room = max(4, min(40, width - 36))
    for point in results.curve:
        if point.budget in wanted:
            bar = Text("━" * max(1, round(room * point.robust.share)), style="cyan")
            label = counted(point.budget, results.settings.unit)
            share = wording.percent(point.robust)
            grid.add_row(label, share, wording.interval(point.robust), bar)
    return grid


def _allowed(result: BudgetResult) -> str:
    return counted(result.budget, result.unit)


def _bullet(text: str) -> RenderableType:
    grid = Table.grid()
    grid.add_row("- ", Text(text, overflow="fold"))
    return grid


def _say(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style, overflow="fold"))


def _plain(report: Report) -> None:
    """Tab-separated: a line per number with all that it names, then the words."""
    results, writer = report.results, csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    writer.writerow(
        ("kind", "name", "budget", "robust %", "low %", "high %", "images", "attacked", "broken",
         "only it", "median sites", "median passes", "seconds")
    )  # fmt: skip
    clean = results.clean
    writer.writerow(("clean", "clean", 0, *_percents(clean.share, clean.low, clean.high),
                     clean.images, *[""] * 6))  # fmt: skip
    for result in results.budgets:
        for row in result.attacks:
            writer.writerow(_plain_attack(report, result, row))
        for union in result.ensembles:
            share = union.robust
            numbers = _percents(share.share, share.low, share.high)
            cells = ("ensemble", wording.tidy(union.name), result.budget, *numbers)
            writer.writerow((*cells, share.images, "", clean.count - share.count, *[""] * 4))
    for point in results.curve:
        share = point.robust
        numbers = _percents(share.share, share.low, share.high)
        writer.writerow(("curve", "any hit", point.budget, *numbers, share.images, *[""] * 6))
    writer.writerow(("subject", wording.subject(results)))
    writer.writerow(("identity", wording.identity(results)))
    writer.writerow(("images", wording.choice(results)))
    for flag in results.flags:
        kind = "unreliable" if flag.fatal else "flag"
        writer.writerow((kind, wording.tidy(flag.name), wording.tidy(flag.message, 600)))
    for line in results.untested:
        writer.writerow(("not tested", wording.tidy(line, 400)))
    for line in wording.meaning(results):
        writer.writerow(("note", line))


def _plain_attack(report: Report, result: BudgetResult, row: AttackRow) -> Sequence[object]:
    own = row.robust
    numbers = _percents(own.share, own.low, own.high) if own else ("", "", "")
    spent = report.run.attack_seconds.get(row.name)
    return (
        "attack", wording.tidy(row.name), result.budget, *numbers,
        report.results.subject.images, row.attacked, row.broken, _dash(row.only),
        _dash(row.median_distance), _dash(row.median_passes),
        _dash(spent if result is report.results.budgets[0] else None),
    )  # fmt: skip


def _percents(*shares: float) -> tuple[str, ...]:
    return tuple(f"{100 * share:.1f}" for share in shares)


def _dash(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
