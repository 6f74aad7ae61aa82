import time

import pytest

from robust0.auditing.estimate import cost_plan, measure
from robust0.auditing.run import run_audit
from robust0.distributed import World
from robust0.models.fast import compiling
from robust0.models.fast.oracle import frozen


def test_the_plan_says_what_runs_and_what_it_costs(make_job):
    job = make_job(budgets=(8, 4), attacks=("saa",), effort="quick")
    found = cost_plan(job, World())
    assert [(cost.attack, cost.budget, cost.passes) for cost in found.costs] == [
        (name, budget, passes)
        for budget in (8, 4)
        for name, passes in (("sparse-pgd-p", 201), ("sparse-pgd-u", 201), ("sparse-rs", 1000))
    ]
    assert found.seconds == sum(cost.seconds for cost in found.costs) > 0
    pgd, rs = found.costs[0], found.costs[2]
    # Costs are passes times the measured price of one: a gradient call is two passes.
    per_forward, per_gradient = 1 / found.forwards_per_second, 1 / found.gradients_per_second
    assert rs.seconds == pytest.approx(1000 * 32 * per_forward)
    assert pgd.seconds == pytest.approx(201 * 32 * per_gradient / 2)


def test_a_compiled_network_is_compiled_for_the_plan_and_not_again_for_the_run(
    make_job, monkeypatch
):
    made = []

    def backend(graph, examples):
        made.append(graph)
        return graph.forward

    monkeypatch.setattr(compiling, "_inductor", backend)
    job = make_job(compile=True)
    cost_plan(job, World())
    assert len(made) == 2  # one for logits, one for gradients
    list(run_audit(job, World(), resume=False))
    assert len(made) == 2


def test_processes_share_the_cost(make_job):
    two = cost_plan(make_job(), World(0, 2))
    rate = two.costs[-1].seconds * two.forwards_per_second
    assert rate == pytest.approx(50 * 32)


def test_a_measurement_takes_no_longer_than_told(make_job):
    job = make_job()
    begun = time.perf_counter()
    with frozen(job.network):
        forward, gradient = measure(job, job.oracle, seconds=0.1)
    assert min(forward, gradient) > 0
    assert time.perf_counter() - begun < 5
