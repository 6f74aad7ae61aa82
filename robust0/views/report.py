"""The final report of an audit, on stdout: drawn to the width of the terminal, plain, or JSON."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from robust0 import wording
from robust0.records import BudgetResult, Report
from robust0.units import counted, plural
from robust0.views.output import ReportFormat, Verbosity, out, text_out
from robust0.views.report_tsv import write_tsv

_GAP = 2  # cells between columns
_LEGEND = (
    "it alone: images that no other attack broke; {unit}: the median change that a hit needs; "
    "passes: the median of forward and backward passes per image"
)
_GOOD, _FAIR = 0.5, 0.2  # shares from which a robust accuracy is shown in green, in yellow


def show_report(report: Report, form: str, where: str = "") -> None:
    """Write a report to stdout in a form; ``where`` is the page that has all of it."""
    match ReportFormat(form).resolved():
        case ReportFormat.JSON:
            sys.stdout.write(report.model_dump_json(by_alias=True, indent=1) + "\n")
        case ReportFormat.TSV:
            write_tsv(report)
        case ReportFormat.RICH:
            draw_report(report, out(), where=where, full=Verbosity.verbose)
        case _:
            draw_report(report, text_out(), where=where, full=True)


def draw_report(report: Report, console: Console, *, where: str = "", full: bool = False) -> None:
    """Draw a report to the console's width, the answer last; ``full``: with every caveat."""
    results = report.results
    for result in results.budgets:
        _draw_attacks(report, result, console)
    unit = plural(results.settings.unit)
    _say(console, _LEGEND.format(unit=unit), "dim")
    if results.rounds:
        console.print()
        _say(console, f"survivors over passes: {wording.convergence(results)}", "bold")
        for table in tables(_rounds(report, console.width), console.width):
            console.print(table)
    if len(results.curve) > 1:
        console.print()
        _say(console, "accuracy over budgets", "bold")
        console.print(_curve(report, console.width, 9 if full else 4))
    if full:
        _draw_caveats(report, console)
    console.print()
    _say(console, f"robust0 audit · {wording.subject(results)}", "bold")
    _say(console, wording.identity(results), "dim")
    if full:
        _say(console, wording.choice(results), "dim")
    console.print(_numbers(report, console.width))
    _draw_caveat_line(report, console, where)


def _draw_attacks(report: Report, result: BudgetResult, console: Console) -> None:
    results = report.results
    caption = "attacks" if len(results.budgets) == 1 else f"attacks, {_allowed(result)}"
    _say(console, caption, "bold")
    for table in tables(_columns(report, result), console.width):
        console.print(table)
    for row in result.attacks:
        if row.notes:
            _say(console, f"* {wording.tidy(row.name, 40)} {wording.notes(row)}", "dim")


def _draw_caveats(report: Report, console: Console) -> None:
    results = report.results
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


def _draw_caveat_line(report: Report, console: Console, where: str) -> None:
    """All reservations in a line, and where to read them."""
    results = report.results
    fatal = dict.fromkeys(wording.tidy(f.name) for f in results.flags if f.fatal)
    other = dict.fromkeys(wording.tidy(f.name) for f in results.flags if not f.fatal)
    line = Text()
    if fatal:
        line.append(f"unreliable: {', '.join(fatal)}; ", style="bold red")
    line.append(wording.short_meaning(results), style="yellow")
    if other:
        line.append(f"; doubts: {', '.join(other)}", style="yellow")
    console.print(line)
    say_where(console, where)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of text; the first one names the rows."""

    head: str
    cells: tuple[str, ...]
    right: bool = True
    styles: tuple[str, ...] = ()  # of the cells; none: plain

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
    styled = [zip_longest(column.cells, column.styles, fillvalue="") for column in columns]
    for cells in zip(*styled, strict=True):
        table.add_row(*(Text(cell, style=style) for cell, style in cells))
    return table


def _columns(report: Report, result: BudgetResult) -> list[Column]:
    rows, spent = result.attacks, report.run.attack_seconds
    shares = [row.robust for row in rows]
    columns = [
        Column(
            "attack",
            tuple(f"{wording.tidy(row.name, 40)}{'*' if row.notes else ''}" for row in rows),
            right=False,
        ),
        Column("robust", tuple(wording.percent(share) if share else "-" for share in shares)),
        Column("95 %", tuple(wording.interval(share) if share else "-" for share in shares)),
        Column("attacked", tuple(wording.number(row.attacked) for row in rows)),
        Column("broken", tuple(wording.number(row.broken) for row in rows)),
        Column("it alone", tuple(wording.number(row.only) for row in rows)),
        Column(plural(result.unit), tuple(wording.number(row.median_distance) for row in rows)),
        Column("passes", tuple(wording.number(row.median_passes) for row in rows)),
    ]
    if result is report.results.budgets[0]:
        cells = tuple(wording.seconds(spent.get(row.name)) for row in rows)
        columns.append(Column("seconds", cells))
    return columns


def _rounds(report: Report, width: int) -> list[Column]:
    rows = wording.rounds(report.results)
    columns = [
        Column(head, cells, right=head != "attack")
        for head, cells in zip(wording.ROUNDS, zip(*rows, strict=True), strict=True)
    ]
    names, rest = columns[2], [*columns[:2], *columns[3:]]
    if len(report.results.budgets) == 1:
        rest = rest[1:]
    room = max(4, min(30, width - 66))
    shares = [row.robust.share for row in report.results.rounds]
    bars = tuple("━" * max(1, round(room * share)) for share in shares)
    return [names, *rest, Column("", bars, right=False)]


def _numbers(report: Report, width: int) -> RenderableType:
    results = report.results
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    for justify in ("left", "right", "left"):
        grid.add_column(justify=justify)
    grid.add_row("clean", wording.percent(results.clean), wording.interval(results.clean))
    for result in results.budgets:
        for name, robust in wording.headline(result):
            label = f"{name}, {_allowed(result)}" if width >= 50 else f"{name} @{result.budget}"
            share = Text(f"≤ {wording.percent(robust)}", style=f"bold {shade(robust.share)}")
            grid.add_row(Text(label, style="bold"), share, wording.interval(robust))
    return grid


def _curve(report: Report, width: int, most: int) -> RenderableType:
    results = report.results
    wanted = set(wording.shown_budgets(results, most))
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


def shade(share: float) -> str:
    """How good a robust or certified accuracy is."""
    return "green" if share >= _GOOD else "yellow" if share >= _FAIR else "red"


def say_where(console: Console, page: str) -> None:
    """Point to the page; a terminal may break the line, the text has no break to be copied."""
    if page:
        console.print(Text(f"all of it: {page}", style="dim"), soft_wrap=True)


def _allowed(result: BudgetResult) -> str:
    return counted(result.budget, result.unit)


def _bullet(text: str) -> RenderableType:
    grid = Table.grid()
    grid.add_row("- ", Text(text, overflow="fold"))
    return grid


def _say(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style, overflow="fold"))
