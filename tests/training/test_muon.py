"""Muon: orthogonal steps for matrices, plain momentum for the rest."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from robust0.rng import seeded
from robust0.training.muon import OrthogonalMomentum, orthogonal, split
from robust0.training.optimizers import Muon

sides = st.integers(1, 12)


def network():
    with seeded("muon"):
        return nn.Sequential(
            nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
            nn.Conv2d(6, 6, 3, groups=6), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4),
        )  # fmt: skip


def learn(model, optimiser, steps, first=0):
    for step in range(first, first + steps):
        with seeded("batch", step):
            images, labels = torch.rand(5, 3, 8, 8), torch.randint(0, 4, (5,))
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimiser.step()


@settings(deadline=None, max_examples=60)
@given(sides, sides, st.integers(0, 1000))
def test_singular_values_come_near_one_and_vectors_stay(rows, columns, seed):
    """Against the polar factor from the singular value decomposition."""
    with seeded("matrix", seed):
        left, _, right = torch.linalg.svd(torch.randn(rows, columns), full_matrices=False)
        values = torch.empty(min(rows, columns)).uniform_(0.1, 1)
    turned = orthogonal(left @ values.diag() @ right, 5)
    inner = left.T @ turned @ right.T
    assert (inner.diagonal() > 0.6).all()
    assert (inner.diagonal() < 1.3).all()
    assert torch.allclose(inner, inner.diagonal().diag(), atol=1e-4)
    assert torch.allclose(turned, left @ inner @ right, atol=1e-4)  # nothing beside them


def test_which_weights_are_matrices():
    model = network()
    matrices, rest = split(model)
    assert [id(w) for w in matrices] == [id(model[0].weight), id(model[6].weight)]
    assert len(matrices) + len(rest) == len(list(model.parameters()))
    model[0].weight.requires_grad_(False)
    assert len(split(model)[0]) == 1
    optimiser = OrthogonalMomentum(nn.Linear(2, 3), Muon())  # a classifier alone
    assert len(optimiser.param_groups) == 1


def test_the_rest_follows_nesterovs_momentum():
    ours, theirs = network(), network()
    for model in (ours, theirs):
        for weight in split(model)[0]:
            weight.requires_grad_(False)
    learn(ours, OrthogonalMomentum(ours, Muon(lr=0.01, momentum=0.8, rest=3.0)), 6)
    free = [weight for weight in theirs.parameters() if weight.requires_grad]
    learn(theirs, torch.optim.SGD(free, lr=0.03, momentum=0.8, nesterov=True), 6)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=1e-6)


@pytest.mark.parametrize("shape", [(12, 3), (3, 12)])
def test_a_step_of_a_matrix(shape):
    """The slope alone decides the direction, not the size: twice the slope is the same step."""
    chosen = Muon(lr=0.1, momentum=0.5, weight_decay=0.2)
    with seeded("step"):
        start, slope = torch.randn(*shape), torch.randn(*shape)
    for scale in (1.0, 2.0):
        model = nn.Sequential(nn.Linear(shape[1], shape[0], bias=False), nn.Linear(shape[0], 2))
        model[0].weight.data.copy_(start)
        model[0].weight.grad = scale * slope
        OrthogonalMomentum(model, chosen).step()
        longer = max(1, shape[0] / shape[1]) ** 0.5
        expected = start * (1 - 0.1 * 0.2) - 0.1 * longer * orthogonal(slope, 5)
        assert torch.allclose(model[0].weight, expected, atol=1e-5)
    with pytest.raises(ValueError, match="no closure"):
        OrthogonalMomentum(model, chosen).step(lambda: 0.0)


def test_its_memory_brings_it_back_bit_by_bit():
    whole, cut = network(), network()
    first = OrthogonalMomentum(whole, Muon())
    learn(whole, first, 6)
    before = OrthogonalMomentum(cut, Muon())
    learn(cut, before, 3)
    after = OrthogonalMomentum(cut, Muon())
    after.load_state_dict(before.state_dict())
    learn(cut, after, 3, first=3)
    for one, other in zip(whole.parameters(), cut.parameters(), strict=True):
        assert torch.equal(one, other)


def test_weights_in_another_layout_take_the_same_steps():
    usual, last = network(), network().to(memory_format=torch.channels_last)
    for model in (usual, last):
        learn(model, OrthogonalMomentum(model, Muon()), 3)
    for one, other in zip(usual.parameters(), last.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-4)
