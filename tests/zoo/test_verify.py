from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robust0 import upgrades
from robust0.auditing.plan import evenly
from robust0.commands.build_attacks import attack_entries
from robust0.commands.verify import audit_spec
from robust0.gate.baseline import Baseline
from robust0.gate.baseline import read as read_baseline
from robust0.gate.claims import Line, compare_claims, papers
from robust0.records import Report
from robust0.resources import shipped
from robust0.zoo.cards import read_card
from robust0.zoo.documents import read_json
from robust0.zoo.roots import INDEX
from tests.zoo.conftest import NAME

SHIPPED = sorted(path for path in shipped("model_zoo").glob("*.yaml") if path.name != INDEX)


@pytest.fixture(scope="session")
def published(made):
    zoo = made / "zoo"
    card = read_card(zoo / f"{NAME}.yaml", NAME)
    return (
        card,
        read_json(zoo / card.report, Report, upgrades.report),
        read_baseline(zoo / card.verdicts),
    )


def changed(stored: Baseline, attack: str, change, rows=None) -> Baseline:
    """The same verdicts, on some of the images, with one attack's bits changed."""
    rows = range(len(stored.ids)) if rows is None else rows

    def at(bits):
        return "".join(bits[row] for row in rows)

    (budget,) = stored.budgets
    robust = {name: at(bits) for name, bits in budget.robust.items()}
    robust[attack] = change(robust[attack])
    return stored.model_copy(
        update={
            "ids": tuple(stored.ids[row] for row in rows),
            "labels": tuple(stored.labels[row] for row in rows),
            "clean": at(stored.clean),
            "budgets": (budget.model_copy(update={"robust": robust}),),
        }
    )


def test_papers_agree(published):
    assert papers(*published) == []


def test_verdicts_of_another_audit(published):
    card, report, stored = published
    settings = stored.settings.model_copy(update={"seed": 1})
    other = stored.model_copy(update={"settings": settings})
    assert "another audit" in papers(card, report, other)[0]


def test_verdicts_that_say_something_else(published):
    card, report, stored = published
    other = changed(stored, "sparse-rs", lambda bits: bits.replace("1", "0", 1))
    problems = papers(card, report, other)
    assert any("sparse-rs at 3" in problem for problem in problems)


def test_a_report_that_says_something_else(published):
    card, report, stored = published
    row = card.audit.robust[0].model_copy(update={"percent": 0.0, "low": 0.0})
    audit = card.audit.model_copy(update={"robust": (row, *card.audit.robust[1:])})
    problems = papers(card.model_copy(update={"audit": audit}), report, stored)
    assert len(problems) == 1
    assert row.name in problems[0]


def test_equal_verdicts_hold(published):
    stored = published[2]
    result = compare_claims(stored, stored)
    assert result.holds
    assert result.differing == 0
    assert result.verdicts == 40 * 5
    assert [line.name for line in result.lines][-2:] == ["saa", "worst-case"]


def test_some_images_in_another_order(published):
    stored = published[2]
    rows = [7, 3, 20]
    result = compare_claims(stored, changed(stored, "sparse-rs", str, rows))
    assert result.differing == 0
    assert {line.images for line in result.lines} == {3}


def test_a_claim_that_fails(published):
    stored = published[2]
    again = changed(stored, "sparse-rs", lambda bits: bits.replace("1", "0", 6))
    result = compare_claims(stored, again)
    assert not result.holds
    assert result.differing == 6
    failed = {line.name for line in result.lines if not line.holds}
    assert "sparse-rs" in failed
    assert "clean" not in failed


def test_a_weaker_attack_does_not_refute_an_upper_bound(published):
    stored = published[2]
    again = changed(stored, "sparse-rs", lambda bits: bits.replace("0", "1"))
    result = compare_claims(stored, again)
    assert result.holds
    assert result.differing > 0


@given(st.integers(0, 60), st.integers(0, 60))
def test_a_line_fails_only_by_a_significant_loss(lost, gained):
    line = Line("x", 1, 200, 100, 100 - lost + gained, lost, gained)
    if lost <= gained or lost < 5:
        assert line.holds
    if gained == 0 and lost >= 5:
        assert not line.holds


@given(st.integers(1, 5000), st.integers(1, 200))
def test_chosen_images_are_spread_and_distinct(images, count):
    ids = range(1000, 1000 + images)
    found = evenly(ids, count)
    assert len(found) == len(set(found)) == min(images, count)
    assert set(found) <= set(ids)
    assert list(found) == sorted(found)
    steps = [after - before for before, after in pairwise(found)]
    assert max(steps, default=1) <= max(1, -(-images // count))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_audit_can_be_run_again(path):
    card = read_card(path, path.stem)
    stored = read_baseline(path.parent / card.verdicts)
    audit = audit_spec(stored)
    assert audit.effort == card.audit.effort.removesuffix(" (modified)")
    assert [spec.name for spec in audit.attacks] == [spec.name for spec in stored.attacks]
    assert len(attack_entries(audit.attacks)) == len(stored.attacks)
