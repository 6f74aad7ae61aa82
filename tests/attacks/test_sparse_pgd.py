import math

import pytest
import torch

from robust0.attacks.base import Reply
from robust0.attacks.sparse_pgd import SparsePGD
from robust0.testing import check_attack
from robust0.threats import Threat


def gradient_of(problem, images, labels):
    images = images.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(problem.model.eval()(images), labels, reduction="sum")
    return torch.autograd.grad(loss, images)[0]


def test_with_all_sites_it_is_plain_sign_ascent(small, play):
    problem, threat = small(count=6), Threat.of(30)
    attack = SparsePGD(steps=12, projected=False, patience=10**6)
    state = attack.start(problem.rows(threat))
    clean = problem.images
    change = state.image(state.magnitude.clone())
    for _ in range(13):
        images = (clean + change).clamp(0, 1)
        assert torch.equal(play(attack, state, problem.model), images)
        direction = gradient_of(problem, images, problem.labels).sign()
        change = (change + 0.25 * direction).clamp(-clean, 1 - clean)


@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("threat", [Threat.of(7), Threat.of(11, "feature")], ids=str)
def test_one_step_follows_the_formulas(projected, threat, linear):
    problem = linear(10, Threat.of(10))
    attack = SparsePGD(projected=projected)
    state = attack.start(problem.rows(threat))
    logits, magnitude, mask = state.logits.clone(), state.magnitude.clone(), state.mask.clone()
    images = attack.ask(state)
    slope = threat.view(gradient_of(problem, images, problem.labels))
    attack.tell(state, Reply(problem.model(images).detach(), slope))
    # g_m = (sum over channels of G p) sigma (1 - sigma), a step of length beta sqrt(S).
    sigma = 1 / (1 + torch.exp(-logits))
    g_m = (slope * magnitude).sum(dim=1) * sigma * (1 - sigma)
    length = 0.25 * math.sqrt(logits.shape[1])
    expected = logits + length * g_m / (g_m.norm(dim=1, keepdim=True) + 1e-10)
    assert torch.allclose(state.logits, expected, atol=1e-5)
    # The sign of G b, or of G sigma, times alpha, inside the box.
    g_p = slope * (mask[:, None] if projected else sigma[:, None])
    moved = (magnitude + 0.25 * g_p.sign()).clamp(-state.clean, 1 - state.clean)
    assert torch.allclose(state.magnitude, moved, atol=1e-7)
    if projected:
        outside = ~mask[:, None].expand_as(magnitude)
        assert torch.equal(state.magnitude[outside], magnitude[outside])
    assert torch.equal(state.mask.sum(dim=1), torch.full((16,), threat.budget))


@pytest.mark.parametrize(
    ("size", "compat", "rests"),
    [(0.0, None, True), (1e-13, None, False), (1e-30, None, False), (1e-13, "icml2024", True)],
)
def test_a_mask_rests_only_where_there_is_no_gradient(small, size, compat, rests):
    problem = small(count=3)
    attack = SparsePGD(compat=compat)
    state = attack.start(problem.rows(Threat.of(4)))
    logits = state.logits.clone()
    attack.tell(state, Reply(torch.zeros(3, 4), torch.full_like(state.clean, size)))
    assert torch.equal(state.logits, logits) is rests
    if rests:
        assert state.stalled.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("reinit", "after"), [("consecutive", [1, 0, 1]), ("cumulative", [1, 1, 2])]
)
def test_stalls_are_counted_per_row(reinit, after, small):
    problem = small(count=1)
    attack = SparsePGD(reinit=reinit, patience=10)
    state = attack.start(problem.rows(Threat.of(4)))
    state.logits = 0.1 * state.mask.float()  # one step is enough to enter the support
    counts = []
    for support_changes in (False, True, False):
        slope = torch.zeros_like(state.clean)
        if support_changes:
            free = (~state.mask[0]).nonzero()[0, 0]
            slope[0, :, free] = state.magnitude[0, :, free].sign()
        attack.tell(state, Reply(torch.zeros(1, 4), slope))
        counts.append(int(state.stalled[0]))
    assert counts == after


def test_a_stuck_row_draws_a_new_mask_and_looks_at_it_first(small):
    problem = small(count=2)
    attack = SparsePGD(patience=2)
    state = attack.start(problem.rows(Threat.of(4)))
    still = Reply(torch.zeros(2, 4), torch.zeros_like(state.clean))
    for _ in range(2):
        assert attack.wants_gradient(state).all()
        attack.tell(state, still)
    assert not attack.wants_gradient(state).any()
    mask, magnitude = state.mask.clone(), state.magnitude.clone()
    attack.tell(state, Reply(torch.zeros(2, 4)))
    assert not torch.equal(state.mask, mask)
    assert torch.equal(state.magnitude, magnitude)
    assert state.stalled.tolist() == [0, 0]
    assert attack.wants_gradient(state).all()


def test_compat_redraws_and_takes_the_step_of_the_old_mask(small):
    problem = small(count=2)
    attack = SparsePGD(patience=1, compat="icml2024")
    assert attack.notes == ("compat icml2024",)
    assert attack.reinit == "cumulative"
    state = attack.start(problem.rows(Threat.of(4)))
    attack.tell(state, Reply(torch.zeros(2, 4), torch.zeros_like(state.clean)))
    assert attack.wants_gradient(state).all()
    state.magnitude = torch.zeros_like(state.magnitude)  # so that the mask takes no step
    mask, logits = state.mask.clone(), state.logits.clone()
    attack.tell(state, Reply(torch.zeros(2, 4), torch.ones_like(state.clean)))
    assert not torch.equal(state.logits, logits)
    moved = (state.magnitude != 0).any(dim=1)
    assert torch.equal(moved, mask & (state.clean < 1).any(dim=1))
    assert SparsePGD().notes == ()


def test_the_newer_release_looks_at_a_new_mask_first_and_climbs_the_margin_when_close(small):
    problem = small(count=2)
    attack = SparsePGD(patience=1, compat="tpami2025", loss="ce", reinit="consecutive")
    assert (attack.loss, attack.reinit) == ("adaptive", "cumulative")
    assert attack.notes == ("compat tpami2025",)
    state = attack.start(problem.rows(Threat.of(4)))
    attack.tell(state, Reply(torch.zeros(2, 4), torch.zeros_like(state.clean)))
    assert not attack.wants_gradient(state).any()
    logits, magnitude = state.logits.clone(), state.magnitude.clone()
    attack.tell(state, Reply(torch.zeros(2, 4)))
    assert not torch.equal(state.logits, logits)
    assert torch.equal(state.magnitude, magnitude)
    assert SparsePGD(compat="icml2024", loss="margin").loss == "ce"


def test_the_adaptive_loss_is_the_margin_below_a_half_and_cross_entropy_above(small):
    problem = small(count=4)
    state = SparsePGD().start(problem.rows(Threat.of(4)))
    leads = torch.tensor([-1.0, 0.25, 0.5, 3.0])
    logits = torch.zeros(4, 4).scatter(1, problem.labels[:, None], leads[:, None])
    logits.requires_grad_()
    climbed = SparsePGD(loss="adaptive").objective(state, logits)
    entropy = torch.nn.functional.cross_entropy(logits, problem.labels, reduction="none")
    assert torch.equal(climbed[:2], -leads[:2])
    assert torch.allclose(climbed[2:], entropy[2:])
    (slope,) = torch.autograd.grad(climbed.sum(), logits)
    pull = slope.gather(1, problem.labels[:, None])[:, 0]
    expected = entropy.exp().reciprocal().detach() - 1
    assert torch.allclose(pull, torch.where(leads < 0.5, -1.0, expected))


def test_where_every_site_is_used_no_mask_is_drawn_anew(small):
    problem = small(count=3)
    attack = SparsePGD(steps=9, patience=1)
    state = attack.start(problem.rows(Threat.of(problem.images[0, 0].numel())))
    for _ in range(9):
        assert attack.wants_gradient(state).all()
        attack.tell(state, Reply(torch.zeros(3, 4), torch.ones_like(state.clean)))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 43, 57)])
def test_steps_on_an_odd_number_of_sites_do_not_depend_on_company(shape, small):
    """Kernels round the last few entries of a tensor, which are not whole vectors, otherwise."""
    problem, threat = small(count=7, shape=shape), Threat.of(30)
    attack = SparsePGD(projected=False)
    together = attack.start(problem.rows(threat))
    alone = [together.take(torch.tensor([row])) for row in range(7)]
    draws = torch.Generator().manual_seed(0)
    for _ in range(12):
        slope = torch.randn(together.clean.shape, generator=draws)
        attack.tell(together, Reply(torch.zeros(7, 4), slope))
        for row, state in enumerate(alone):
            attack.tell(state, Reply(torch.zeros(1, 4), slope[row : row + 1]))
    assert torch.equal(together.logits, torch.cat([state.logits for state in alone]))


def test_the_margin_still_pulls_where_cross_entropy_has_saturated(linear, play):
    problem = linear(10, Threat.of(10), count=4)
    problem.model.weight.data *= 1000
    problem.model.bias *= 1000
    moved = {}
    for loss in ("ce", "margin"):
        attack = SparsePGD(loss=loss, projected=False)
        state = attack.start(problem.rows(Threat.of(10)))
        before = state.magnitude.clone()
        play(attack, state, problem.model)
        moved[loss] = not torch.equal(state.magnitude, before)
    assert moved == {"ce": False, "margin": True}


@pytest.mark.parametrize("compat", ["icml2024", "tpami2025"])
def test_other_forms_keep_the_promises_of_every_attack(compat):
    check_attack(SparsePGD, steps=8, patience=1, compat=compat)
