"""The final report of a certificate, on stdout: drawn to the terminal, plain, or JSON."""

import csv
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from robust0 import wording
from robust0.proofs import Bracket, CertificateReport, CertificateResults, CertifiedClassifier
from robust0.records import Accuracy
from robust0.views.output import ReportFormat, Verbosity, out, text_out
from robust0.views.report import Column, say_where, shade, tables

_MEANING = (
    "proved, for this classifier on these images; a wrong answer can be certified too, but does "
    "not count"
)


def show_certificate(report: CertificateReport, form: ReportFormat, where: str = "") -> None:
    """Write a certificate to stdout in a form; ``where`` is the page that has all of it."""
    match form.resolved():
        case ReportFormat.JSON:
            sys.stdout.write(report.model_dump_json(by_alias=True, indent=1) + "\n")
        case ReportFormat.TSV:
            _tsv(report)
        case ReportFormat.RICH:
            draw_certificate(report, out(), where=where, full=Verbosity.verbose)
        case _:
            draw_certificate(report, text_out(), where=where, full=True)


def draw_certificate(
    report: CertificateReport, console: Console, *, where: str = "", full: bool = False
) -> None:
    """Draw a certificate to the console's width, the answer last; ``full``: with every caveat."""
    results = report.results
    own, *others = results.classifiers
    if full:
        for row in others:
            _say(console, f"{wording.tidy(row.name)} (a classifier of its own)", "bold")
            _draw_classifier(results, row, console)
            console.print()
    elif others:
        _say(
            console, "certified at ... pixels by other rules, each a classifier of its own", "bold"
        )
        for table in tables([*_standings(results, others)], console.width):
            console.print(table)
        console.print()
    if results.bracket is not None:
        _draw_bracket(results, results.bracket, console)
        console.print()
    if full:
        for line in wording.certificate_meaning(results.settings):
            _say(console, line, "")
        console.print()
    subject = results.subject
    title = f"{wording.tidy(subject.model)} · {wording.tidy(subject.dataset)} {subject.split}"
    _say(console, f"robust0 certify · {title}", "bold")
    _say(console, wording.certificate_identity(results), "dim")
    _draw_classifier(results, own, console)
    if not full:
        _say(console, _MEANING, "yellow")
    say_where(console, where)


def _draw_classifier(
    results: CertificateResults, row: CertifiedClassifier, console: Console
) -> None:
    console.print(_points(results, row, console.width))
    median = "none" if row.median is None else wording.pixels(row.median)
    _say(console, f"half of all images are certified at: {median}", "dim")
    broken = any(trial.broken for trial in row.trials)
    _say(console, wording.trials(row), "bold red" if broken else "dim")
    if row.abstained:
        _say(console, f"abstains on {row.abstained:,} images", "dim")


def _standings(
    results: CertificateResults, rows: Sequence[CertifiedClassifier]
) -> Iterator[Column]:
    yield Column("rule", tuple(wording.tidy(row.name, 20) for row in rows), right=False)
    yield Column("clean", tuple(wording.percent(row.clean) for row in rows))
    found = [
        {point.pixels: wording.percent(point.certified) for point in row.points} for row in rows
    ]
    for count in results.settings.pixels:
        yield Column(f"{count:,}", tuple(shares.get(count, "-") for shares in found))


def _points(results: CertificateResults, row: CertifiedClassifier, width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("pixels", justify="right")
    table.add_column("certified", justify="right")
    table.add_column("95 %")
    table.add_column("wrong but certified", justify="right")
    table.add_column("")
    room = max(4, min(36, width - 56))
    rows: list[tuple[str, Accuracy, str]] = [("clean", row.clean, "")]
    rows += [
        (str(point.pixels), point.certified, f"{point.wrong:,}")
        for point in row.points
        if point.pixels in results.settings.pixels
    ]
    for name, share, wrong in rows:
        bar = Text("━" * round(room * share.share), style="green")
        number = Text(wording.percent(share), style=f"bold {shade(share.share)}" if wrong else "")
        table.add_row(name, number, wording.interval(share), wrong, bar)
    return table


def _draw_bracket(results: CertificateResults, bracket: Bracket, console: Console) -> None:
    attacks = ", ".join(wording.tidy(name, 40) for name in bracket.attacks)
    about = f"certified ≤ true ≤ under attack ({attacks}; effort {wording.tidy(bracket.effort)})"
    _say(console, about, "bold")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for head in ("pixels", "certified", "95 %", "under attack", "95 %", "gap"):
        table.add_column(head, justify="right")
    shown = {0, *results.settings.pixels}
    for row in bracket.rows:
        if row.pixels in shown:
            gap = f"{100 * (row.attacked.share - row.certified.share):.1f}"
            table.add_row(
                str(row.pixels), wording.percent(row.certified), wording.interval(row.certified),
                wording.percent(row.attacked), wording.interval(row.attacked), gap,
            )  # fmt: skip
    console.print(table)
    if bracket.differing:
        note = f"{bracket.differing} clean images get another answer in the audit"
        _say(console, note, "yellow")
    if bracket.broken:
        _say(console, f"FALSE CERTIFICATES: images {list(bracket.broken)}", "bold red")


def _say(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style, overflow="fold"))


def _tsv(report: CertificateReport) -> None:
    """Tab-separated: a line per number with all that it names, then the words."""
    results, writer = report.results, csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    writer.writerow(
        ("kind", "name", "pixels", "accuracy %", "low %", "high %", "images", "wrong but certified")
    )
    for row in results.classifiers:
        name = wording.tidy(row.name)
        writer.writerow(("clean", name, 0, *_percents(row.clean), row.clean.images, ""))
        for p in row.points:
            numbers = (*_percents(p.certified), p.certified.images, p.wrong)
            writer.writerow(("certified", name, p.pixels, *numbers))
        writer.writerow(("median", name, wording.number(row.median)))
        writer.writerow(("abstained", name, row.abstained))
        writer.writerow(("tried", name, wording.trials(row)))
    if results.bracket is not None:
        name = wording.tidy(results.bracket.classifier)
        for line in results.bracket.rows:
            for kind, share in (("at least", line.certified), ("at most", line.attacked)):
                numbers = (*_percents(share), share.images, "")
                writer.writerow((kind, name, line.pixels, *numbers))
        for image in results.bracket.broken:
            writer.writerow(("false certificate", name, image))
    writer.writerow(("identity", wording.certificate_identity(results)))
    for text in wording.certificate_meaning(results.settings):
        writer.writerow(("note", text))


def _percents(accuracy: Accuracy) -> tuple[str, ...]:
    return tuple(f"{100 * v:.1f}" for v in (accuracy.share, accuracy.low, accuracy.high))
