"""JUnit XML: a test case per attack, per ensemble and per condition of a gate."""

from xml.etree import ElementTree as Xml

from robust0 import wording
from robust0.decision import Decision
from robust0.records import Accuracy, AttackRow, BudgetResult, Report
from robust0.units import counted, plural

_FIXED = "robust0.audit"


def report_junit(report: Report) -> str:
    """A report as test cases: an attack fails only if it broke its own promises."""
    root = Xml.Element("testsuites", name="robust0")
    _report_suites(root, report)
    return suites_text(root)


def gate_junit(decision: Decision, report: Report | None = None) -> str:
    """A decision as test cases, after those of the report it judges."""
    root = Xml.Element("testsuites", name="robust0")
    decision_suite(root, decision)
    if report is not None:
        _report_suites(root, report)
    return suites_text(root)


def decision_suite(root: Xml.Element, decision: Decision) -> None:
    """The conditions of a gate, one case each."""
    suite = Xml.SubElement(root, "testsuite", name="robust0 gate")
    for check in decision.checks:
        name = wording.tidy(f"{check.metric}: {check.condition}")
        case = Xml.SubElement(suite, "testcase", classname="robust0.gate", name=name, time="0")
        if not check.passed:
            Xml.SubElement(case, "failure", message=wording.tidy(check.message, 1000))
        Xml.SubElement(case, "system-out").text = wording.tidy(check.message, 1000)
    if decision.replay is not None:
        sentence = decision.replay.result.sentence()
        case = Xml.SubElement(
            suite, "testcase", classname="robust0.gate", name="replay of the baseline", time="0"
        )
        if decision.replay.alarm and decision.replay.decisive:
            Xml.SubElement(case, "failure", message=sentence)
        Xml.SubElement(case, "system-out").text = sentence
    Xml.SubElement(suite, "system-out").text = f"{decision.verdict}\n{decision.identity}"
    suite_count(suite)


def _report_suites(root: Xml.Element, report: Report) -> None:
    results = report.results
    for result in results.budgets:
        allowed = counted(result.budget, result.unit)
        suite = Xml.SubElement(
            root, "testsuite", name=f"robust0 audit, {allowed}", timestamp=report.run.started
        )
        properties = Xml.SubElement(suite, "properties")
        for name, value in _properties(report, result):
            Xml.SubElement(properties, "property", name=name, value=wording.tidy(value, 1000))
        first = result is results.budgets[0]  # seconds are of all budgets together
        for row in result.attacks:
            spent = report.run.attack_seconds.get(row.name, 0.0) if first else 0.0
            _attack_case(suite, row, result.unit, spent)
        for ensemble in result.ensembles:
            case = Xml.SubElement(
                suite, "testcase", classname=f"{_FIXED}.ensembles", name=ensemble.name, time="0"
            )
            Xml.SubElement(case, "system-out").text = _accuracy(ensemble.robust)
        lines = [*wording.meaning(results), *(f"{f.name}: {f.message}" for f in results.flags)]
        Xml.SubElement(suite, "system-out").text = "\n".join(wording.tidy(x, 600) for x in lines)
        suite_count(suite)


def _attack_case(suite: Xml.Element, row: AttackRow, unit: str, spent: float) -> None:
    case = Xml.SubElement(
        suite,
        "testcase",
        classname=f"{_FIXED}.attacks",
        name=wording.tidy(row.name),
        time=f"{spent:.3f}",
    )
    if row.violations:
        message = f"{row.violations} attempts outside the budget or the box"
        Xml.SubElement(case, "error", message=message)
    own = "" if row.robust is None else f"{_accuracy(row.robust)}; "
    Xml.SubElement(case, "system-out").text = (
        f"{own}{row.broken} of {row.attacked} attacked images broken, "
        f"{wording.number(row.only)} by it alone; "
        f"median {plural(unit)} {wording.number(row.median_distance)}, "
        f"median passes {wording.number(row.median_passes)}"
    )


def _properties(report: Report, result: BudgetResult) -> list[tuple[str, str]]:
    facts, settings = report.results.subject, report.results.settings
    return [
        ("model", facts.model),
        ("dataset", f"{facts.dataset} {facts.split}"),
        ("identity", wording.identity(report.results, result.budget)),
        ("clean", _accuracy(report.results.clean)),
        ("data-fingerprint", facts.data_fingerprint),
        ("recipe", settings.recipe),
    ]


def _accuracy(accuracy: Accuracy) -> str:
    return (
        f"{wording.percent(accuracy)} of {accuracy.images:,} images still right "
        f"(95 % {wording.interval(accuracy)})"
    )


def suite_count(suite: Xml.Element) -> None:
    """Write into a suite how many cases it has and how they ended."""
    for tag, name in (("testcase", "tests"), ("failure", "failures"), ("error", "errors")):
        suite.set(name, str(sum(1 for _ in suite.iter(tag))))
    suite.set("skipped", "0")
    spent = sum(float(case.get("time", "0")) for case in suite.iter("testcase"))
    suite.set("time", f"{spent:.3f}")


def suites_text(root: Xml.Element) -> str:
    """The document."""
    Xml.indent(root)
    body = Xml.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n'
