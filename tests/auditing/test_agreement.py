"""Files of a run that were edited: what contradicts itself or the rest is refused."""

import json

import pytest

from robust0.auditing.rundata import read_run
from robust0.errors import RunError
from robust0.gate.baseline import of_run
from robust0.records import Flag
from robust0.writers.artefacts import rebuild
from tests.auditing.factory_report import Recipe, make_run


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "run", Recipe(budgets=(4, 2)))


def edit_verdicts(folder, change):
    """Let ``change`` edit the first verdict it accepts."""
    path = folder / "verdicts.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert any(change(record) for record in records)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def is_hit(record):
    return record["fooled"] and record["attack"] != "clean"


CHANGES = {
    "unbroken": lambda r: is_hit(r) and not r.update(fooled=False),
    "broken": lambda r: not r["fooled"] and r["attack"] != "clean" and not r.update(fooled=True),
    "margin": lambda r: is_hit(r) and not r.update(margin=0.5),
    "needs more": lambda r: is_hit(r) and not r.update(needed=r["budget"] + 1),
    "label": lambda r: is_hit(r) and not r.update(label=r["prediction"], prediction=r["label"]),
    "clean": lambda r: r["attack"] == "clean" and not r["fooled"] and not r.update(fooled=True),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_verdict_that_contradicts_itself_is_refused_wherever_it_is_read(folder, change):
    edit_verdicts(folder, change)
    with pytest.raises(RunError, match="contradicts itself"):
        read_run(folder)
    with pytest.raises(RunError, match="contradicts itself"):
        rebuild(folder)


def heal(record):
    """A hit undone with care: prediction, margin and all."""
    return is_hit(record) and not record.update(
        fooled=False, prediction=record["label"], margin=-record["margin"]
    )


def edit(folder, name, change):
    path = folder / name
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_run_as_it_was_made_agrees(folder):
    assert read_run(folder).disagreement() == ""
    of_run(read_run(folder))


REPORTS = {
    "seed": (lambda d: d["results"]["settings"].update(seed=7), "settings.seed is 7"),
    "effort": (lambda d: d["results"]["settings"].update(effort="paper"), "settings.effort"),
    "params": (
        lambda d: d["results"]["budgets"][0]["attacks"][0].update(params={"a": 1}),
        "params",
    ),
    "data": (lambda d: d["results"]["subject"].update(dataset="other"), "subject.dataset"),
    "number": (
        lambda d: d["results"]["budgets"][1]["ensembles"][0]["robust"].update(count=1),
        "the verdicts say",
    ),
    "row": (lambda d: d["results"]["budgets"][0]["attacks"].pop(), "its rows are"),
    "curve": (lambda d: d["results"]["curve"].pop(), "curve"),
    "budget": (lambda d: d["results"]["budgets"].pop(), "it has 1 budgets, the run 2"),
}


@pytest.mark.parametrize(("change", "message"), REPORTS.values(), ids=REPORTS.keys())
def test_a_report_that_does_not_follow_from_its_run_is_refused(folder, change, message):
    edit(folder, "report.json", change)
    with pytest.raises(RunError, match="does not follow") as refusal:
        of_run(read_run(folder))
    assert message in refusal.value.message
    rebuild(folder)
    of_run(read_run(folder))


def test_verdicts_that_were_edited_with_care_no_longer_give_the_report(tmp_path):
    folder = make_run(tmp_path / "run", Recipe(budgets=(4,)))
    edit_verdicts(folder, heal)
    with pytest.raises(RunError, match="does not follow"):
        of_run(read_run(folder))


def test_a_fatal_flag_cannot_be_dropped_from_the_report_alone(tmp_path):
    flag = Flag(name="randomised-model", fatal=True, message="m")
    folder = make_run(tmp_path / "run", Recipe(flags=(flag,)))
    edit(folder, "report.json", lambda d: d["results"].update(flags=[]))
    with pytest.raises(RunError, match="fatal flags"):
        of_run(read_run(folder))


def test_verdicts_of_another_attack_or_revision_are_refused(folder):
    edit_verdicts(folder, lambda r: is_hit(r) and not r.update(revision=99))
    with pytest.raises(RunError, match="revision 99"):
        of_run(read_run(folder))
    edit_verdicts(folder, lambda r: is_hit(r) and not r.update(attack="stranger"))
    with pytest.raises(RunError, match="stranger"):
        of_run(read_run(folder))
