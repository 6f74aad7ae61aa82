"""A certificate as Markdown for a pull request: the headline first, the rest folded away."""

import shlex

from robust0 import wording
from robust0.proofs import Bracket, CertificateReport, CertificateResults, CertifiedClassifier
from robust0.writers.markdown import escaped, folded, markdown_table


def certificate_markdown(report: CertificateReport) -> str:
    """The report as a comment on a pull request."""
    results = report.results
    facts = results.subject
    lines = [
        f"## robust0 certify: {escaped(facts.model)}",
        "",
        f"{escaped(facts.dataset)} {escaped(facts.split)}: "
        f"{escaped(wording.certificate_identity(results))}",
        "",
        *_classifier(results, results.headline),
        "",
        *(f"> {escaped(line)}" for line in wording.certificate_meaning(results.settings)),
    ]
    if results.bracket is not None:
        lines += ["", *_bracket(results.bracket, results)]
    for row in results.classifiers[1:]:
        title = f"{escaped(row.name)}, a classifier of its own over the same network"
        lines += ["", *folded(title, _classifier(results, row))]
    lines += ["", *_classes(results), "", *_rest(report)]
    return "\n".join(lines) + "\n"


def _classifier(results: CertificateResults, row: CertifiedClassifier) -> list[str]:
    rows = [("clean", f"**{wording.percent(row.clean)}**", wording.interval(row.clean), "")]
    rows += [
        (f"**certified**, {wording.pixels(point.pixels)}",
         f"**≥ {wording.percent(point.certified)}**", wording.interval(point.certified),
         f"{point.wrong:,}")
        for point in row.points
        if point.pixels in results.settings.pixels
    ]  # fmt: skip
    name = escaped(row.name)
    head = (name, "accuracy", "95 % interval", "wrong but certified")
    tail = f"Median certified pixels: {wording.number(row.median)}. {escaped(wording.trials(row))}."
    if row.abstained:
        tail += f" It abstains on {row.abstained:,} images."
    return [*markdown_table(head, rows), "", tail]


def _bracket(bracket: Bracket, results: CertificateResults) -> list[str]:
    shown = {0, *results.settings.pixels}
    rows = [
        (wording.pixels(row.pixels), f"{wording.percent(row.certified)}",
         f"{wording.percent(row.attacked)}",
         f"{100 * (row.attacked.share - row.certified.share):.1f}")
        for row in bracket.rows
        if row.pixels in shown
    ]  # fmt: skip
    attacks = escaped(", ".join(bracket.attacks))
    head = ("pixels", "certified", "under attack", "gap in points")
    about = f"certified ≤ true ≤ under attack ({attacks}; effort {escaped(bracket.effort)})"
    lines = ["**The truth lies between**", "", about, "", *markdown_table(head, rows)]
    if bracket.broken:
        lines += ["", f"**False certificates**: images {escaped(str(list(bracket.broken)))}"]
    return lines


def _classes(results: CertificateResults) -> list[str]:
    pixels = results.settings.pixels
    rows = [
        (escaped(row.name), str(row.images), str(row.clean),
         *(str(row.certified[k]) for k in pixels))
        for row in results.headline.classes
    ]  # fmt: skip
    head = ("class", "images", "right", *(f"certified at {k}" for k in pixels))
    return folded("Classes", markdown_table(head, rows))


def _rest(report: CertificateReport) -> list[str]:
    facts, settings = report.results.subject, report.results.settings
    rows = [
        ("model", facts.model),
        ("architecture", facts.arch),
        ("checkpoint sha256", facts.sha256 or "not a file"),
        ("data fingerprint", facts.data_fingerprint),
        *((key, str(value)) for key, value in settings.details.items()),
        ("device; torch", f"{settings.device}; {settings.torch}"),
    ]
    command = wording.tidy(shlex.join(report.run.command), 2000).replace("`", "'")
    body = markdown_table(("", ""), [(escaped(name), escaped(value)) for name, value in rows])
    return folded("Settings", [*body, "", "Run it again:", "", "```", command, "```"])
