"""Linear networks, where the fewest sites that fool are known exactly, from both sides."""

from dataclasses import fields, replace

import pytest

from robust0.attacks.battery import battery, budget_of
from robust0.threats import Threat

QUICK = {
    name: kind(**budget_of(kind, "quick"), **named.params)
    for name, (kind, named) in battery().items()
}
OPTIMUM = 10
# With this many sites more, all images must fall: a tenth for whoever sees the gradient; the black
# boxes have to meet the best sites by chance, corner-search among half of its single changes only.
SLACK = {"sparse-rs": 6, "corner-search": 10}


def budgeted(attack, **budgets):
    """The attack with these budgets, as far as it has them."""
    names = {field.name for field in fields(attack)}
    return replace(attack, **{name: value for name, value in budgets.items() if name in names})


@pytest.mark.parametrize("unit", ["pixel", "feature"])
@pytest.mark.parametrize("name", QUICK)
def test_nobody_beats_the_optimum(name, unit, linear, drive):
    problem = linear(OPTIMUM, Threat.of(OPTIMUM, unit), count=4)
    attack = budgeted(QUICK[name], queries=100, forwards=100)
    outcomes = drive(attack, problem, Threat.of(OPTIMUM - 1, unit))
    assert not any(outcome.fooled or outcome.violation for outcome in outcomes)


@pytest.mark.parametrize("unit", ["pixel", "feature"])
@pytest.mark.parametrize("name", QUICK)
def test_everybody_comes_near_the_optimum(name, unit, linear, drive):
    problem = linear(OPTIMUM, Threat.of(OPTIMUM, unit), count=8)
    threat = Threat.of(OPTIMUM + SLACK.get(name, 1), unit)
    outcomes = drive(budgeted(QUICK[name], steps=1000), problem, threat)
    assert all(outcome.fooled for outcome in outcomes)
    assert all(outcome.distance >= OPTIMUM for outcome in outcomes)
