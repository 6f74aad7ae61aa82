from itertools import pairwise

import torch

from robust0.attacks.base import Reply
from robust0.attacks.saif import SAIF
from robust0.threat import Threat, top_mask


def test_it_starts_at_the_first_order_optimum(linear, gains, play):
    problem, threat = linear(10, Threat(pixels=10)), Threat(pixels=10)
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
    problem, threat = small(count=3), Threat(pixels=4)
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


def test_magnitudes_rest_where_there_is_no_slope(small):
    problem = small(count=2)
    attack = SAIF()
    state = attack.start(problem.rows(Threat(pixels=4)))
    attack.tell(state, Reply(torch.zeros(2, 4), torch.zeros_like(state.clean)))
    assert not state.magnitude.any()
    assert not state.weight.any()
    assert torch.equal(attack.ask(state), problem.images)


def test_the_support_still_moves_after_the_fourth_iteration(trained, play):
    problem, threat = trained.first(32), Threat(pixels=6)
    attack = SAIF(steps=40)
    state = attack.start(problem.rows(threat))
    supports = [
        threat.changed(problem.images, play(attack, state, problem.model)) for _ in range(41)
    ]
    moves = [bool((old != new).any()) for old, new in pairwise(supports[5:])]
    assert sum(moves) > 10
