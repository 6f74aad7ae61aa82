from fractions import Fraction
from xml.etree import ElementTree

import pytest

from robust0.decision import ReplayResult
from robust0.gate.decide import decide, floor_checks, judge_replay
from robust0.gate.metrics import Floor, Metric
from robust0.records import Flag
from robust0.writers.junit import gate_junit, report_junit
from tests.auditing.factory_report import ATTACKS, Recipe, make_report

REPLAY = ReplayResult(images=10, survivors=5, newly_broken=3, newly_wrong=0, hits=0, still_hits=0)


def suites(text):
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites"
    for suite in root:
        for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            assert int(suite.get(name)) == len(list(suite.iter(tag)))
    return list(root)


def test_a_case_per_attack_and_ensemble():
    report = make_report(Recipe(budgets=(4, 2)))
    found = suites(report_junit(report))
    assert [suite.get("name") for suite in found] == [
        "robust0 audit, 4 pixels",
        "robust0 audit, 2 pixels",
    ]
    for suite in found:
        names = [case.get("name") for case in suite.iter("testcase")]
        assert names == [*ATTACKS, "saa", "worst-case"]
        assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    times = [float(case.get("time")) for case in found[0].iter("testcase")]
    assert times[:2] == [12.5, 32.5]
    assert sum(float(case.get("time")) for case in found[1].iter("testcase")) == 0
    assert float(found[0].get("time")) == pytest.approx(sum(times))
    assert "seed 0" in ElementTree.tostring(found[0], encoding="unicode")


def test_a_broken_promise_is_an_error():
    report = make_report()
    results = report.results
    row = results.budgets[0].attacks[1].model_copy(update={"violations": 2})
    budget = results.budgets[0].model_copy(update={"attacks": (results.budgets[0].attacks[0], row)})
    bad = report.model_copy(update={"results": results.model_copy(update={"budgets": (budget,)})})
    (suite,) = suites(report_junit(bad))
    assert suite.get("errors") == "1"


@pytest.mark.parametrize("floors", [(0, 0), (0, 100), (100, 100)])
@pytest.mark.parametrize("decisive", [None, False, True])
def test_failures_are_those_of_the_decision(floors, decisive):
    report = make_report()
    wanted = [Floor(Metric(n), Fraction(f)) for n, f in zip(("saa", "clean"), floors, strict=True)]
    replay = None if decisive is None else judge_replay(REPLAY, Fraction(1), decisive=decisive)
    decision = decide(report.results, floor_checks(report.results, wanted), replay)
    first, *rest = suites(gate_junit(decision, report))
    assert int(first.get("failures")) == len(decision.failures)
    assert (int(first.get("failures")) == 0) is (decision.exit_code == 0)
    assert int(first.get("tests")) == 2 + (replay is not None)
    assert len(rest) == 1
    assert decision.verdict in first.find("system-out").text


def test_hostile_names_make_valid_xml():
    flag = Flag(name='x"<y>', fatal=False, message="\x00\x1b]]>&\ufffe")
    report = make_report(Recipe(model='<&"\x00\ud800>', flags=(flag,)))
    (suite,) = suites(report_junit(report))
    assert '<&"' in suite.find("properties/property[@name='model']").get("value")
