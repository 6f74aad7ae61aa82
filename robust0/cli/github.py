"""What GitHub Actions reads of a gate: the step summary, an annotation per failure, outputs."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from robust0.errors import Robust0Error
from robust0.views import output

if TYPE_CHECKING:
    from robust0.decision import Decision


def in_actions(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a GitHub Actions step is running us."""
    return environment.get("GITHUB_ACTIONS") == "true"


def publish(decision: "Decision", *, data_on_stdout: bool) -> None:
    """Tell Actions about a decision; elsewhere do nothing.

    Args:
        decision: of the gate.
        data_on_stdout: stdout carries JSON, XML or markdown for a parser, so annotations go to
            stderr, which the runner reads as well.
    """
    if not in_actions():
        return
    from robust0.writers.markdown import gate_markdown

    stream = sys.stderr if data_on_stdout else sys.stdout
    stream.write("".join(f"{line}\n" for line in annotations(decision)))
    _append("GITHUB_STEP_SUMMARY", gate_markdown(decision))
    _append("GITHUB_OUTPUT", outputs(decision))


def publish_refusal(refusal: Robust0Error) -> None:
    """Tell Actions that no decision could be made; elsewhere do nothing."""
    if not in_actions():
        return
    from robust0.writers.markdown import failure_markdown

    sys.stderr.write(annotation("robust0 gate could not decide", refusal.message) + "\n")
    _append("GITHUB_STEP_SUMMARY", failure_markdown(refusal.message, refusal.hint))


def annotations(decision: "Decision") -> list[str]:
    """One error per condition that does not hold."""
    return [annotation(f"robust0 gate: {title}", message) for title, message in decision.failures]


def annotation(title: str, message: str) -> str:
    """A workflow command; its own separators are escaped, so a name cannot start another one."""
    text = _escaped(message)
    heading = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::error title={heading}::{text}"


def outputs(decision: "Decision") -> str:
    """Step outputs: passed, and the first check's metric, value and drop."""
    values = {"passed": "true" if decision.passed else "false"}
    if decision.checks:
        first = decision.checks[0]
        values |= {"metric": first.metric, "value": f"{first.value:.2f}"}
        if first.paired is not None:
            values["drop"] = f"{first.paired.drop:.2f}"
    return "".join(f"{name}={' '.join(value.split())}\n" for name, value in values.items())


def _escaped(text: str) -> str:
    return output.visible(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _append(variable: str, text: str) -> None:
    target = os.environ.get(variable)
    if not target:
        return
    try:
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        output.warn(f"cannot write ${variable} ({target}): {problem.strerror}")
