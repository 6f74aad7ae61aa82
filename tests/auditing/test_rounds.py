"""Rounds of doubling budgets: what each holds, when they end, and what the report says of them."""

from fractions import Fraction

import pytest

from robust0.auditing.plan import Book
from robust0.auditing.rounds import RoundsPlan
from robust0.auditing.run import run_audit as run_audit
from robust0.distributed import World
from robust0.events import AuditFinished
from robust0.records import CLEAN, Verdict, configured, in_round, round_of

COST = {"guided-swap": 4, "sparse-rs": 10, "x": 2, "y": 2}


def plan(images=100, *, tolerance="0.01", limit=10_000, budgets=(4,), attacks=tuple(COST)):
    passes = {name: dict.fromkeys(budgets, COST[name]) for name in attacks}
    return RoundsPlan(
        budgets, attacks, cascade=True, thorough=False, passes=passes, images=images,
        tolerance=Fraction(tolerance), limit=limit,
    )  # fmt: skip


def verdict(image, attack, fooled, *, budget=4, needed=3, passes=10):
    budget = 0 if attack == CLEAN else budget
    return Verdict(
        image=image, label=0, attack=attack, revision=1, unit="pixel", budget=budget,
        fooled=fooled, prediction=int(fooled), margin=-1.0 if fooled else 1.0, distance=needed,
        needed=needed, forwards=passes, backwards=0, fragile=False, violation="",
    )  # fmt: skip


def started(images=100):
    book = Book()
    book.add([verdict(image, CLEAN, fooled=False) for image in range(images)])
    return book


def play(rounds, book, hits, images=100):
    """Give every stage its verdicts; ``hits`` says how many each stage breaks."""
    held = []
    for budget, name in rounds.stages():
        if not rounds.includes((budget, name), book):
            continue
        wanted = rounds.wanted((budget, name), range(images), book)
        broken = set(wanted[: hits.get(name, 0)])
        book.add([verdict(image, name, image in broken) for image in wanted])
        held.append((name, len(wanted)))
    return held


def test_names_carry_the_round():
    assert in_round("sparse-rs", 3) == "sparse-rs#3"
    assert (configured("sparse-rs#3"), round_of("sparse-rs#3")) == ("sparse-rs", 3)
    assert (configured("sparse-rs"), round_of("sparse-rs")) == ("sparse-rs", 1)


def test_each_round_meets_the_survivors_and_the_last_one_found_little():
    hits = {"guided-swap#1": 40, "sparse-rs#1": 5, "x#1": 1, "y#1": 3, "guided-swap#2": 4, "y#2": 1}
    held = play(plan(), started(), hits)
    assert held == [
        ("guided-swap#1", 100), ("sparse-rs#1", 60), ("x#1", 55), ("y#1", 54),
        ("guided-swap#2", 51), ("sparse-rs#2", 47), ("y#2", 47),
        ("guided-swap#3", 46), ("sparse-rs#3", 46), ("y#3", 46),
    ]  # fmt: skip


@pytest.mark.parametrize(("broken", "rounds"), [(0, 2), (1, 3), (2, 3)])
def test_a_doubling_must_break_less_than_the_tolerance(broken, rounds):
    """One of 100 images at a tolerance of 1 % is not less than it."""
    held = play(plan(), started(), {"sparse-rs#2": broken})
    assert max(round_of(name) for name, _ in held) == rounds


def test_the_limit_of_passes_ends_it():
    # The first round costs 18; doubled ones cost 2, 4, 8 times 16.
    assert [plan(limit=limit).last(4) for limit in (1, 49, 50, 113, 114)] == [1, 1, 2, 2, 3]
    hits = {in_round("guided-swap", number): 10 for number in range(1, 9)}
    held = play(plan(limit=114), started(), hits)
    assert max(round_of(name) for name, _ in held) == 3


def test_the_third_attack_is_the_one_that_found_most_per_pass():
    book = started()
    rounds = plan()
    first = [verdict(image, "x#1", image < 2, passes=50) for image in range(10)]
    first += [verdict(image, "y#1", image == 5, passes=10) for image in range(10)]
    book.add(first)
    # x broke 2 in 500 passes, y 1 in 100.
    assert rounds.scheduled(4, 2, book) == ("guided-swap", "sparse-rs", "y")


def test_hits_that_fit_a_smaller_budget_need_no_second_search():
    rounds, book = plan(budgets=(8, 4)), started(4)
    book.add([verdict(0, "x#1", fooled=True, budget=8, needed=3)])
    book.add([verdict(1, "x#1", fooled=True, budget=8, needed=7)])
    assert rounds.wanted((4, "guided-swap#1"), range(4), book) == [1]


def test_nothing_is_decided_before_all_images_have_their_verdicts():
    rounds, book = plan(images=2), Book()
    stage = (4, "guided-swap#2")
    book.add([verdict(0, CLEAN, fooled=False)])
    book.add([verdict(0, in_round(name, 1), fooled=False) for name in COST])
    assert not rounds.ready(stage, [0, 1], book)  # the other's clean image is still to come
    book.add([verdict(1, CLEAN, fooled=False)])
    assert not rounds.ready(stage, [0, 1], book)
    assert not rounds.complete([0, 1], book)
    book.add([verdict(1, in_round(name, 1), fooled=False) for name in COST])
    assert rounds.ready(stage, [0, 1], book)


def finished(job):
    *_, last = run_audit(job, World(), resume=False)
    assert isinstance(last, AuditFinished)
    return last.report.results


def test_a_converged_audit_says_how_it_got_there(make_job):
    job = make_job(
        effort="converged", mode="cascade", attacks=("worst-case",), budgets=(3, 1),
        params={"guided-swap": {"forwards": 20}, "sparse-rs": {"queries": 20},
                "corner-search": {"forwards": 20}, "saif": {"steps": 5},
                "sigma-zero": {"steps": 5}, "sparse-pgd-p": {"steps": 5},
                "sparse-pgd-u": {"steps": 5}},
    )  # fmt: skip
    results = finished(job)
    rows = [row for row in results.rounds if row.budget == 3]
    assert [row.attack for row in rows[:2]] == ["guided-swap", "sparse-rs"]
    counts = [row.robust.count for row in rows]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == results.budgets[0].ensembles[-1].robust.count
    assert sum(row.broken for row in rows) == results.clean.count - counts[-1]
    doubled = {(row.number, row.attack): row.passes for row in rows}
    assert doubled[2, "guided-swap"] == 2 * doubled[1, "guided-swap"]
    last = max(row.number for row in rows)
    broken = sum(row.broken for row in rows if row.number == last)
    assert broken < 0.005 * results.subject.images or not counts[-1]
    assert "not-converged" not in {flag.name for flag in results.flags}
    assert [row.name for row in results.budgets[0].attacks][:2] == ["guided-swap", "sparse-rs"]
