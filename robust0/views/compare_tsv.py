"""A comparison as tab-separated lines, for programs and spreadsheets."""

import csv
import sys

from robust0.comparison import ComparisonResults
from robust0.records import Accuracy
from robust0.wording import tidy


def write_comparison_tsv(results: ComparisonResults) -> None:
    """A line per number and subject with all that it names, then curves, images and words."""
    writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    writer.writerow(
        ("kind", "name", "budget", "subject", "accuracy %", "low %", "high %", "images",
         "difference", "low", "high", "only A", "only subject")
    )  # fmt: skip
    letters = [side.letter for side in results.sides]
    for row in results.rows:
        pairs = {pair.letter: pair for pair in row.pairs}
        for letter, share in zip(letters, row.shares, strict=True):
            cells = (row.kind, tidy(row.name), row.budget, letter, *_percents(share))
            pair = pairs.get(letter)
            differences = [""] * 5
            if pair is not None:
                points = (pair.difference, pair.low, pair.high)
                differences = [f"{value:.2f}" for value in points]
                differences += [str(len(pair.only_first)), str(len(pair.only_other))]
            writer.writerow((*cells, share.images, *differences))
    for curve in results.curves:
        for point in curve.points:
            cells = ("curve", "any hit" if results.kind == "audit" else "certified", point.budget)
            writer.writerow((*cells, curve.letter, *_percents(point.robust), point.robust.images))
    for image in results.separating:
        writer.writerow(("image", image.image, tidy(image.name), image.survivors))
    for side in results.sides:
        writer.writerow(
            ("subject", side.letter, tidy(side.source), tidy(side.model), tidy(side.identity))
        )
    for kind, lines in (
        ("differs", results.caveats), ("note", (*results.notes, *results.meaning)),
        ("verdict", results.verdicts),
    ):  # fmt: skip
        for line in lines:
            writer.writerow((kind, tidy(line, 2000)))


def _percents(share: Accuracy) -> tuple[str, ...]:
    return tuple(f"{100 * value:.2f}" for value in (share.share, share.low, share.high))
