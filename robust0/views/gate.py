"""A gate's decision on stdout: the verdict line first, then what it rests on."""

import json
import sys

from rich.text import Text

from robust0.decision import Decision, points
from robust0.views.output import ReportFormat, out, visible
from robust0.wording import tidy


def show_gate(decision: Decision, form: str) -> None:
    """Write a decision as ``rich``, ``plain`` or ``json``; ``auto`` is one of the first two."""
    match ReportFormat(form).resolved():
        case ReportFormat.JSON:
            text = json.dumps(decision.document(), indent=1, ensure_ascii=False)
            sys.stdout.write(text + "\n")
        case ReportFormat.RICH:
            _draw(decision)
        case _:
            sys.stdout.write("".join(f"{visible(line)}\n" for line in _lines(decision)))


def _draw(decision: Decision) -> None:
    console = out()
    style = "bold green" if decision.passed else "bold red"
    verdict, *rest = _lines(decision)
    console.print(Text(verdict, style=style))
    for line in rest:
        word, _, text = line.partition(": ")
        colour = {"ok": "green", "FAIL": "bold red", "alarm": "bold yellow"}.get(word, "dim")
        console.print(Text(f"{word}: ", style=colour) + Text(text))


def _lines(decision: Decision) -> list[str]:
    lines = [decision.verdict]
    lines += [
        f"{'ok' if check.passed else 'FAIL'}: {tidy(check.message, 1000)}"
        for check in decision.checks
    ]
    if decision.replay is not None:
        replay = decision.replay
        word = ("FAIL" if replay.decisive else "alarm") if replay.alarm else "ok"
        lines.append(f"{word}: {replay.result.sentence()}; allowed: {points(replay.allowed)}")
    return [*lines, f"measured: {decision.identity}"]
