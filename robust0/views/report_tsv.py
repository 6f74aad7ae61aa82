"""A report as tab-separated lines, for programs and spreadsheets."""

import csv
import sys
from collections.abc import Sequence

from robust0 import wording
from robust0.records import AttackRow, BudgetResult, Report


def write_tsv(report: Report) -> None:
    """A line per number with all that it names, then the words."""
    results, writer = report.results, csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    writer.writerow(
        ("kind", "name", "budget", "robust %", "low %", "high %", "images", "attacked", "broken",
         "broken by it alone", "median distance", "median passes", "seconds")
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
    for cells in wording.rounds(results):
        writer.writerow(("round", *cells))
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
