"""A comparison on stdout: drawn to the width of the terminal with the verdict last, TSV or JSON."""

import json
import sys

from rich.console import Console
from rich.text import Text

from robust0 import wording
from robust0.comparison import ComparedRow, ComparisonResults, SeparatingImage, signed
from robust0.units import counted, plural
from robust0.views.chart import step_chart
from robust0.views.compare_tsv import write_comparison_tsv
from robust0.views.output import OutputFormat, Verbosity, out, text_out, visible
from robust0.views.report import Column, tables

STYLES = dict(
    zip("ABCDEFGH", ("cyan", "magenta", "yellow", "green", "blue", "red", "white", "bright_black"),
        strict=True)
)  # fmt: skip
_FEW = 12  # images of a list; all of them with -v and in files
_COLOURS = {1: "bold green", -1: "bold red", 0: ""}


def show_comparison(results: ComparisonResults, form: OutputFormat) -> None:
    """Write a comparison to stdout in a form."""
    match form.resolved():
        case OutputFormat.JSON:
            text = json.dumps(results.document(), indent=1, ensure_ascii=False)
            sys.stdout.write(visible(text) + "\n")
        case OutputFormat.TSV:
            write_comparison_tsv(results)
        case OutputFormat.RICH:
            draw_comparison(results, out(), full=Verbosity.verbose)
        case _:
            draw_comparison(results, text_out(), full=True)


def draw_comparison(results: ComparisonResults, console: Console, *, full: bool = False) -> None:
    """Draw a comparison to the console's width, the answer last."""
    for side in results.sides:
        line = Text(f"{side.letter}  ", style=f"bold {STYLES[side.letter]}")
        line.append(wording.tidy(side.source), style="bold")
        model = " ".join(wording.tidy(part) for part in (side.model, side.method or "") if part)
        known = "" if side.model == side.source else f"{model}; "
        console.print(line.append(f"  {known}{side.identity}", style="dim"))
    console.print()
    for table in tables(_columns(results), console.width):
        console.print(table)
    _draw_curves(results, console)
    _draw_images(results, console, full=full)
    console.print()
    if full:
        for text in results.meaning:
            _say(console, text, "")
    for text in results.notes:
        _say(console, text, "dim")
    if len(results.caveats) > 1 and full:
        _say(console, f"{results.differing}: {'; '.join(results.caveats)}", "yellow")
    for text, pair in zip(results.verdicts, results.main.pairs, strict=True):
        _say(console, text, _COLOURS[pair.sign] or "bold")


def _columns(results: ComparisonResults) -> list[Column]:
    rows, sides = results.rows, results.sides
    budgets = {row.budget for row in rows if row.kind != "clean"}
    single = counted(next(iter(budgets)), results.unit) if len(budgets) == 1 else ""
    names = tuple(_name(row, several=not single) for row in rows)
    columns = [Column(single or "", names, right=False)]
    for place, side in enumerate(sides):
        shares = tuple(wording.percent(row.shares[place]) for row in rows)
        columns.append(Column(side.letter, shares))
    first = sides[0].letter
    for place, side in enumerate(sides[1:]):
        pairs = [row.pairs[place] for row in rows]
        styles = tuple(_COLOURS[pair.sign] for pair in pairs)
        columns += [
            Column(f"{side.letter} - {first}", tuple(signed(p.difference) for p in pairs),
                   styles=styles),
            Column("95 %", tuple(f"{signed(p.low)} to {signed(p.high)}" for p in pairs)),
            Column(f"{first} not {side.letter}", tuple(f"{len(p.only_first):,}" for p in pairs)),
            Column(f"{side.letter} not {first}", tuple(f"{len(p.only_other):,}" for p in pairs)),
        ]  # fmt: skip
    return columns


def _name(row: ComparedRow, *, several: bool) -> str:
    return f"{row.shown} @{row.budget}" if several and row.kind != "clean" else row.shown


def _draw_curves(results: ComparisonResults, console: Console) -> None:
    series = {
        curve.letter: [(float(p.budget), p.robust.share) for p in curve.points]
        for curve in results.curves
    }
    word = "certified accuracy" if results.kind == "certificate" else "accuracy"
    console.print()
    _say(console, f"{word} over changed {plural(results.unit)}", "bold")
    console.print(step_chart(series, STYLES, width=min(console.width, 100)))


def _draw_images(results: ComparisonResults, console: Console, *, full: bool) -> None:
    """Images that only some survive, by who does."""
    console.print()
    title = results.main.title(results.unit)
    groups: dict[str, list[SeparatingImage]] = {}
    for image in results.separating:
        groups.setdefault(image.survivors, []).append(image)
    if not groups:
        _say(console, f"every image is answered alike by all: {title}", "bold")
        return
    _say(console, f"images that {results.survive} in some only: {title}", "bold")
    for letters in sorted(groups):
        own = groups[letters]
        shown = own if full else own[:_FEW]
        named = ", ".join(f"{one.image} {one.title}" for one in shown)
        more = f" and {len(own) - len(shown):,} more" if len(own) > len(shown) else ""
        who = Text(f"only {' and '.join(letters)}", style=f"bold {STYLES[letters[0]]}")
        console.print(who + Text(f" ({len(own):,}): {named}{more}", style="not bold default"))


def _say(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style, overflow="fold"))
