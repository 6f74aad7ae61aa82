"""report.md for a pull request, and a gate's decision for a step summary."""

import re
import shlex
from collections.abc import Sequence

from robust0 import wording
from robust0.decision import Check, Decision
from robust0.records import BudgetResult, Report
from robust0.units import counted, plural

# What could start emphasis, code, a link, an image, a table cell, HTML, a mention or a formula;
# then what makes a bare address a link, and what makes a line a list or a heading.
_SPECIAL = re.compile(r"[\\`*{}\[\]#|<>~@&$!]|:(?=//)|(?<=www)\.|^[-+=]", re.IGNORECASE)
_NUMBERED = re.compile(r"^(\d{1,9})([.)])")


def escaped(text: str) -> str:
    """Text of unknown origin as plain words; ordinary names stay readable in the source."""
    shown = _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", wording.tidy(text, 1000))
    shown = _NUMBERED.sub(lambda match: f"{match[1]}&#{ord(match[2])};", shown)
    return shown.replace("_", r"\_")


def report_markdown(report: Report) -> str:
    """The report as a comment on a pull request: the verdict first, the rest folded away."""
    results = report.results
    facts = results.subject
    lines = [
        f"## robust0 audit: {escaped(facts.model)}",
        "",
        f"{escaped(facts.dataset)} {escaped(facts.split)}: {escaped(wording.identity(results))}; "
        f"{escaped(wording.choice(results))}",
        "",
        *_headline(report),
        "",
        *(f"> {escaped(line)}" for line in wording.meaning(results)),
    ]  # fmt: skip
    if results.flags:
        lines += ["", "**Reasons for doubt**", ""]
        lines += [
            f"- {'**unreliable** ' if flag.fatal else ''}{escaped(flag.name)}: "
            f"{escaped(flag.message)}"
            for flag in results.flags
        ]
    for result in results.budgets:
        lines += ["", *_attacks(report, result)]
    if results.rounds:
        rows = [tuple(map(escaped, row)) for row in wording.rounds(results)]
        lines += ["", *folded("Survivors, round by round", markdown_table(wording.ROUNDS, rows))]
    lines += ["", *_curve(report), "", *_rest(report)]
    return "\n".join(lines) + "\n"


def gate_markdown(decision: Decision) -> str:
    """A decision as a step summary."""
    sign = "✅" if decision.passed else "❌"
    lines = [f"## {sign} robust0 {decision.verdict}", ""]
    if decision.checks:
        rows = [_check_row(check) for check in decision.checks]
        lines += markdown_table(
            ("", "metric", "condition", "value", "drop", "95 % interval", "p"), rows
        )
        lines += ["", *(f"- {escaped(check.message)}" for check in decision.checks)]
    if decision.replay is not None:
        kind = "alarm" if decision.replay.alarm else "quiet"
        lines += ["", f"**Replay, {kind}.** {escaped(decision.replay.result.sentence())}"]
    meaning = decision.meaning or wording.UPPER_BOUND
    lines += ["", f"{escaped(decision.identity)}. {escaped(meaning)}"]
    return "\n".join(lines) + "\n"


def failure_markdown(message: str, hint: str) -> str:
    """A gate that could not decide."""
    return f"## ❌ robust0 gate could not decide\n\n{escaped(message)}\n\n{escaped(hint)}\n"


def _headline(report: Report) -> list[str]:
    results = report.results
    rows = [("clean", wording.percent(results.clean), wording.interval(results.clean), "")]
    for result in results.budgets:
        allowed = counted(result.budget, result.unit)
        rows += [
            (f"**{name}**, {allowed}", f"**≤ {wording.percent(robust)}**",
             wording.interval(robust), str(len(row.attacks)))
            for (name, robust), row in zip(wording.headline(result), result.ensembles, strict=True)
        ]  # fmt: skip
    return markdown_table(("", "accuracy", "95 % interval", "attacks"), rows)


def _attacks(report: Report, result: BudgetResult) -> list[str]:
    battery = report.results.settings.mode == "battery"
    head = ("attack", *(("robust", "95 % interval") if battery else ()))
    head = (*head, "attacked", "broken", "by it alone", f"median {plural(result.unit)}")
    head = (*head, "median passes", "seconds")
    rows = []
    for row in result.attacks:
        own = (
            (wording.percent(row.robust), wording.interval(row.robust))
            if row.robust is not None
            else ()
        )
        rows.append((
            f"{escaped(row.name)} {escaped(wording.notes(row))}".strip(), *own,
            wording.number(row.attacked), wording.number(row.broken), wording.number(row.only),
            wording.number(row.median_distance), wording.number(row.median_passes),
            wording.seconds(report.run.attack_seconds.get(row.name)),
        ))  # fmt: skip
    title = escaped(wording.identity(report.results, result.budget))
    return folded(
        f"Attacks at {counted(result.budget, result.unit)}",
        [title, "", *markdown_table(head, rows), "", wording.columns(result.unit)],
    )


def _curve(report: Report) -> list[str]:
    results = report.results
    wanted = set(wording.shown_budgets(results))
    rows = [
        (counted(p.budget, results.settings.unit), wording.percent(p.robust),
         wording.interval(p.robust))
        for p in results.curve
        if p.budget in wanted
    ]  # fmt: skip
    title = escaped(wording.identity(results))
    table = markdown_table(("budget", "still right", "95 % interval"), rows)
    return folded("Accuracy over budgets", [title, "", *table])


def _rest(report: Report) -> list[str]:
    facts, settings = report.results.subject, report.results.settings
    rows = [
        ("model", facts.model),
        ("architecture", facts.arch),
        ("checkpoint sha256", facts.sha256 or "not a file"),
        ("data fingerprint", facts.data_fingerprint),
        ("recipe hash", settings.recipe),
        ("device; torch", f"{settings.device}; {settings.torch}"),
    ]
    command = wording.tidy(shlex.join(report.run.command), 2000).replace("`", "'")
    body = markdown_table(("", ""), [(name, escaped(value)) for name, value in rows])
    body += ["", "Run it again:", "", "```", command, "```"]
    if report.results.untested:
        body += ["", "Not tested:", ""]
        body += [f"- {escaped(line)}" for line in report.results.untested]
    return folded("Settings, and what was not tested", body)


def _check_row(check: Check) -> tuple[str, ...]:
    paired = check.paired
    drop = (
        ("", "", "")
        if paired is None
        else (f"{paired.drop:.1f}", f"{paired.low:.1f} to {paired.high:.1f}", f"{paired.p:.2g}")
    )
    sign = "✅" if check.passed else "❌"
    return (sign, escaped(check.metric), check.condition, f"{check.value:.1f} %", *drop)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table; cells are markdown already."""
    lines = [head, [":--", *("--:" for _ in head[1:])], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def folded(title: str, body: Sequence[str]) -> list[str]:
    """Lines behind a title that opens them."""
    return ["<details>", f"<summary>{title}</summary>", "", *body, "", "</details>"]
