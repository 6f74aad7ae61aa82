from itertools import pairwise

import pytest
import torch

from robust0.attacks.base import Reply
from robust0.attacks.saif import SAIF
from robust0.testing import check_attack
from robust0.threats import Threat
from robust0.threats.sparse import top_mask


def test_it_starts_at_the_first_order_optimum(linear, gains, play):
    problem, threat = linear(10, Threat.of(10)), Threat.of(10)
    attack = SAIF(steps=5)
    state = attack.start(problem.rows(threat))
    assert torch.equal(play(attack, state, problem.model), problem.images)
    images = attack.ask(state)
    best = top_mask(gains(problem.model.weight.detach(), problem.images, threat), 10)
    assert torch.equal(threat.changed(problem.images, images), best)
    corner = (problem.model.weight < 0).float().expand_as(images)
    assert torch.equal(
        threat.view(images)[best[:, None].expand(-1, 3, -1)],
        threat.view(corner)[best[:, None].expand(-1, 3, -1)],
    )


def test_a_step_follows_the_formulas(small):
    """Section by section: gain, vertex, step length, the mask stays continuous."""
    problem, threat = small(count=3), Threat.of(4)
    attack = SAIF(steps=50)
    state = attack.start(problem.rows(threat))
    generator = torch.Generator().manual_seed(1)
    clean, losses, halvings = state.clean, [], torch.ones(3)
    s, p = torch.zeros(3, 30), torch.zeros_like(clean)
    for step in range(8):
        logits = torch.randn(3, 4, generator=generator)
        slope = torch.randn(clean.shape, generator=generator)
        losses.append(torch.nn.functional.cross_entropy(logits, problem.labels, reduction="none"))
        if step:
            worse = losses[-1] < losses[-2]
            halvings = (halvings + torch.where(worse, 1, -1)).clamp(min=1)
        v = torch.where(slope > 0, 1 - clean, -clean)
        g_s = (slope * (p if step else v)).sum(dim=1)
        zeta = (top_mask(g_s, 4) & (g_s > 0)).float()
        mu = 1 / (2**halvings * step**0.5) if step else torch.ones(3)
        s = s + mu[:, None] * (zeta - s)
        p = p + mu[:, None, None] * (v - p)
        attack.tell(state, Reply(logits, slope))
        assert torch.allclose(state.weight, s, atol=1e-6)
        assert torch.allclose(state.magnitude, p, atol=1e-6)
    assert halvings.unique().numel() > 1
    assert int(((state.weight > 0) & (state.weight < 1)).sum()) > 4


def test_a_random_origin_is_k_sites_inside_the_box(small, play):
    problem, threat = small(count=6), Threat.of(4)
    attack = SAIF(origin="random")
    state = attack.start(problem.rows(threat))
    first = play(attack, state, problem.model)
    assert threat.distance(problem.images, first).tolist() == [4] * 6
    assert 0 <= float(first.min()) <= float(first.max()) <= 1
    assert len({tuple(row) for row in threat.changed(problem.images, first).tolist()}) > 1
    # From there on it takes the usual short steps: the first one is half a step.
    assert ((state.weight == 0.5) | (state.weight == 0) | (state.weight == 1)).all()
    assert (state.weight == 0.5).any()


def test_the_form_of_the_paper_takes_back_steps_that_lower_the_loss(small):
    """Vertices of the unit ball below the mask; mu = 1 / (2**r sqrt(t + 1)), r only grows."""
    problem, threat = small(count=1), Threat.of(4)
    attack = SAIF(steps=50, compat="imtiaz2022")
    state, generator = attack.start(problem.rows(threat)), torch.Generator().manual_seed(3)
    clean, label = state.clean, int(problem.labels[0])
    # How much the loss is at each look: the first step is kept although it falls.
    rising = [2.0, 1.0, 1.5, 1.2, 1.1, 1.6, 1.6]
    s, p, held, r, t = torch.zeros(1, 30), torch.zeros_like(clean), None, 1, 0
    highest = None
    for look, lead in enumerate(rising):
        slope = torch.randn(clean.shape, generator=generator)
        logits = torch.zeros(1, 4)
        logits[0, label] = -lead
        if look == 0:
            v = slope.sign()
            s = top_mask((slope * v).sum(dim=1), 4).float()
            p = v.clamp(-clean, 1 - clean)
        else:
            if highest is None or lead >= highest:
                held, highest, t = (s, p, slope), lead, t + 1
            else:
                r += 1
            s, p, at = held
            v = at.sign() * (s > 0)[:, None]
            g_s = (at * p).sum(dim=1)
            mu = 1 / (2**r * t**0.5)
            s = s + mu * ((top_mask(g_s, 4) & (g_s > 0)).float() - s)
            p = (p + mu * (v - p)).clamp(-clean, 1 - clean)
        attack.tell(state, Reply(logits, slope))
        assert torch.allclose(state.weight, s, atol=1e-6)
        assert torch.allclose(state.magnitude, p, atol=1e-6)
    assert float(state.halvings) == r == 3


def test_the_rounded_form_keeps_k_sites_and_soon_stands_still(small):
    problem, threat = small(count=4), Threat.of(4)
    attack = SAIF(steps=50, compat="binarised")
    assert attack.origin == "random"
    state, generator = attack.start(problem.rows(threat)), torch.Generator().manual_seed(3)
    masks = []
    for step in range(12):
        slope = torch.randn(state.clean.shape, generator=generator)
        if step == 0:
            first = top_mask((slope * state.magnitude).sum(dim=1), 4).float()
        attack.tell(state, Reply(torch.zeros(4, 4), slope))
        assert state.weight.sum(dim=1).tolist() == [4] * 4
        assert set(state.weight.flatten().tolist()) == {0.0, 1.0}
        masks.append(state.weight.clone())
    assert torch.equal(masks[0], first)
    assert not torch.equal(masks[0], masks[2])
    # A site that enters has less weight than one that leaves, once steps are below a half.
    assert all(torch.equal(mask, masks[3]) for mask in masks[4:])


def test_a_row_says_whose_form_it_is():
    assert SAIF().notes == ("robust0's own form",)
    assert SAIF(compat="imtiaz2022").notes == ("compat imtiaz2022",)
    assert SAIF(compat="binarised", origin="gradient").origin == "random"


def test_magnitudes_rest_where_there_is_no_slope(small):
    problem = small(count=2)
    attack = SAIF()
    state = attack.start(problem.rows(Threat.of(4)))
    attack.tell(state, Reply(torch.zeros(2, 4), torch.zeros_like(state.clean)))
    assert not state.magnitude.any()
    assert not state.weight.any()
    assert torch.equal(attack.ask(state), problem.images)


def test_the_support_still_moves_after_the_fourth_iteration(trained, play):
    problem, threat = trained.first(32), Threat.of(6)
    attack = SAIF(steps=40)
    state = attack.start(problem.rows(threat))
    supports = [
        threat.changed(problem.images, play(attack, state, problem.model)) for _ in range(41)
    ]
    moves = [bool((old != new).any()) for old, new in pairwise(supports[5:])]
    assert sum(moves) > 10


@pytest.mark.parametrize(
    "form", [{"origin": "random"}, {"compat": "imtiaz2022"}, {"compat": "binarised"}], ids=str
)
def test_other_forms_keep_the_promises_of_every_attack(form):
    check_attack(SAIF, steps=8, **form)
