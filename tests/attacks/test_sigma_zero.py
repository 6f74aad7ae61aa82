import copy
import math
from dataclasses import replace

import pytest
import torch

from robust0.attacks.base import Reply
from robust0.attacks.sigma_zero import SigmaZero
from robust0.losses import margin
from robust0.models.fast.oracle import frozen
from robust0.threats import Threat


def reference(model, images, labels, attack, threat):
    """Sigma-zero as its paper states it, with autograd for the whole loss and torch's own Adam.

    Returns the iterates, the last one included.
    """
    change = torch.zeros_like(images, requires_grad=True)
    optimizer = torch.optim.Adam([change], lr=attack.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, attack.steps, eta_min=attack.lr / 10
    )
    tau = torch.full((len(images), 1, 1), attack.threshold)
    iterates = []
    for _ in range(attack.steps):
        iterates.append((images + change).detach().clone())
        logits = model(images + change).float()
        size = threat.view(change).square().sum(dim=1)
        smooth = (size / (size + attack.sigma)).sum(dim=1) / size.shape[1]
        optimizer.zero_grad()
        (margin(logits, labels).relu() + smooth).sum().backward()
        change.grad /= change.grad.abs().amax(dim=(1, 2, 3), keepdim=True).clamp(min=1e-12)
        optimizer.step()
        change.data = change.data.clamp(-images, 1 - images)
        schedule.step()
        eta = schedule.get_last_lr()[0] * attack.threshold_step
        fooled = (logits.argmax(dim=1) != labels)[:, None, None]
        tau = (tau + torch.where(fooled, eta, -eta)).clamp(0, 1)
        sites = threat.view(change.data)
        large = sites.abs() if attack.elementwise else sites.abs().amax(dim=1, keepdim=True)
        change.data = sites.where(large >= tau, 0.0).reshape(images.shape)
    iterates.append((images + change).detach().clone())
    return iterates


@pytest.mark.parametrize(
    ("threat", "settings"),
    [
        (Threat.of(5, "feature"), {}),
        (Threat.of(5), {}),
        (Threat.of(5), {"elementwise": True}),
        (
            Threat.of(5, "feature"),
            {"lr": 0.1, "sigma": 1.0, "threshold": 0.1, "threshold_step": 0.0015},
        ),
    ],
    ids=["features", "pixels", "elementwise", "star"],
)
def test_the_iterates_are_those_of_the_paper(threat, settings, trained, play):
    # In float64, where the two ways to sum do not differ enough to cross a threshold.
    problem = trained.first(12)
    problem = replace(
        problem, model=copy.deepcopy(problem.model).double(), images=problem.images.double()
    )
    attack = SigmaZero(steps=15, **settings)
    with frozen(problem.model):
        expected = reference(problem.model, problem.images, problem.labels, attack, threat)
    state = attack.start(problem.rows(threat))
    agree = []
    for iterate in expected:
        asked = play(attack, state, problem.model)
        agree.append((asked - iterate).abs().flatten(1).amax(dim=1) < 1e-3)
    assert torch.stack(agree).all()


def test_the_objective_is_the_negative_hinge(small):
    problem = small(count=2)
    attack = SigmaZero()
    state = attack.start(problem.rows(Threat.of(4)))
    logits = torch.full((2, 4), -1.0)
    logits[0, problem.labels[0]] = 2.0
    logits[1, (problem.labels[1] + 1) % 4] = 2.0
    assert attack.objective(state, logits).tolist() == [-3.0, 0.0]


@pytest.mark.parametrize("threat", [Threat.of(6), Threat.of(6, "feature")], ids=str)
def test_on_a_linear_network_it_finds_the_sites_of_largest_gain(threat, linear, gains, play):
    """Six sites matter, of different weights, and five of them are not enough."""
    problem = linear(10, Threat.of(10), count=8)
    model, images = problem.model, problem.images
    sites = threat.view(images)
    heavy = torch.arange(6) * 11 + 3
    with torch.no_grad():
        weight = threat.view(model.weight[None])
        weight *= 0.02
        weight[0, :, heavy] = torch.linspace(1, 1.5, 6) * torch.tensor([1, -1, 1, -1, 1, -1])
        sites[:, :, heavy] = torch.where(weight[:, :, heavy] > 0, 0.8, 0.2)
        score = (model.weight * images).flatten(1).sum(dim=1)
        reach = gains(model.weight, images, threat)[0, heavy]
        model.bias = float(reach.sum() - reach.min() / 2 - score.mean())
    attack = SigmaZero(steps=200)
    state = attack.start(problem.rows(threat))
    found = torch.zeros(8, dtype=torch.int64)
    for _ in range(201):
        asked = play(attack, state, model)
        changed = threat.changed(images, asked)
        with torch.no_grad():
            hits = (model(asked).argmax(dim=1) != problem.labels) & (changed.sum(dim=1) <= 6)
        found += hits
        assert (changed[hits].nonzero()[:, 1].view(-1, 6) == heavy).all()
    assert bool((found > 0).all())
    assert state.fewest.tolist() == [6] * 8


def test_sites_are_cut_off_whole_or_by_element(small):
    problem, threat = small(count=1), Threat.of(4)
    for elementwise, expected in ((False, [0.5, 0.01, -0.2]), (True, [0.5, 0.0, 0.0])):
        attack = SigmaZero(steps=10, elementwise=elementwise)
        state = attack.start(problem.rows(threat))
        state.perturbation[0, :, 3] = torch.tensor([0.5, 0.01, -0.2])
        state.perturbation[0, :, 4] = torch.tensor([0.2, 0.01, -0.2])
        attack._sparsify(state, torch.tensor([True]))
        assert state.perturbation[0, :, 3].tolist() == pytest.approx(expected)
        assert not state.perturbation[0, :, 4].any()


def test_the_threshold_rises_while_fooled_and_falls_otherwise(small):
    problem = small(count=2)
    attack = SigmaZero(steps=4)
    state = attack.start(problem.rows(Threat.of(4)))
    logits = torch.full((2, 4), -1.0)
    logits[0, problem.labels[0]] = 2.0
    logits[1, (problem.labels[1] + 1) % 4] = 2.0
    attack.tell(state, Reply(logits, torch.zeros_like(state.clean)))
    eta = 0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2
    assert state.threshold.tolist() == pytest.approx([0.3 - 0.01 * eta, 0.3 + 0.01 * eta])


def test_the_count_is_of_fooled_iterates_only(small):
    problem = small(count=2)
    attack = SigmaZero(steps=4)
    state = attack.start(problem.rows(Threat.of(4)))
    assert state.fewest.tolist() == [31, 31]
    state.perturbation[:, 0, :3] = 0.1
    state.perturbation[:, 1, 2:5] = -0.1
    logits = torch.full((2, 4), -1.0)
    logits[0, problem.labels[0]] = 2.0
    logits[1, (problem.labels[1] + 1) % 4] = 2.0
    attack.tell(state, Reply(logits))
    assert state.fewest.tolist() == [31, 5]


def test_iterates_beyond_the_budget_are_no_hits(trained, drive):
    """The engine sees denser misclassified iterates first and must not take them."""
    outcomes = drive(SigmaZero(steps=60), trained.first(16), Threat.of(8))
    assert any(outcome.fooled for outcome in outcomes)
    assert all(outcome.distance <= 8 and not outcome.violation for outcome in outcomes)
