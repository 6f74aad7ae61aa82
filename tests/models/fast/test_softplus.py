"""A quicker softplus: the same values and slopes, wherever a model calls it during a search."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from robust0.models.fast.oracle import Oracle, frozen
from robust0.models.fast.softplus import QuickSoftplus, softplus
from robust0.rng import seeded

CPU = torch.device("cpu")
RANGE = torch.cat([torch.linspace(-120, 120, 200_001), torch.tensor([-1e30, 1e30, 0.0, -0.0])])


def exact(values):
    return functional.softplus(values.double(), threshold=1e9).clamp(max=1e30)


def test_values():
    values = RANGE[RANGE.abs() < 80]
    assert (softplus(values) - exact(values)).abs().max() < 6e-7


def test_large_arguments_are_their_own_softplus():
    answer = softplus(RANGE)
    assert torch.equal(answer[RANGE > 80], RANGE[RANGE > 80])
    assert (answer[RANGE < -80] == 0).all()


def test_values_that_are_not_finite():
    answer = softplus(torch.tensor([torch.nan, torch.inf, -torch.inf, 100.0]))
    assert answer.isnan().tolist() == [True, False, False, False]
    assert answer[1:].tolist() == [torch.inf, 0.0, 100.0]
    assert softplus(torch.empty(0, 3)).shape == (0, 3)


def test_slopes():
    values = RANGE.clone().requires_grad_()
    weights = torch.linspace(-3, 3, len(RANGE))
    answer = softplus(values)
    assert torch.equal(answer, softplus(RANGE))
    (slope,) = torch.autograd.grad((answer * weights).sum(), values)
    assert (slope - RANGE.double().sigmoid() * weights).abs().max() < 4e-7


def test_slopes_of_slopes():
    """A model may use its own gradient."""
    values = torch.linspace(-5, 5, 11, requires_grad=True)
    (slope,) = torch.autograd.grad(softplus(values).square().sum(), values, create_graph=True)
    (curve,) = torch.autograd.grad(slope.sum(), values)
    (own,) = torch.autograd.grad(
        functional.softplus(values).square().sum(), values, create_graph=True
    )
    (expected,) = torch.autograd.grad(own.sum(), values)
    assert torch.allclose(curve, expected, atol=1e-5)


@given(st.integers(1, 70), st.integers(0, 40))
def test_an_entry_does_not_depend_on_its_place_or_company(length, start):
    with seeded("softplus", 0):
        values = torch.randn(200) * 9
    company = values.clone()
    company[:3] = torch.tensor([torch.nan, torch.inf, 500.0])
    part = softplus(values)[start + 3 : start + 3 + length]
    assert torch.equal(softplus(values[start + 3 : start + 3 + length].clone()), part)
    assert torch.equal(softplus(company)[start + 3 : start + 3 + length], part)


class Network(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)
        self.activation = activation

    def forward(self, x):
        return self.last(self.activation(self.first(x)).mean(dim=(2, 3)))


@pytest.fixture
def counted(monkeypatch):
    calls = []

    def spy(values):
        calls.append(values.shape)
        return softplus(values)

    monkeypatch.setattr("robust0.models.fast.softplus.softplus", spy)
    return calls


@pytest.mark.parametrize(
    ("activation", "replaced"),
    [
        (functional.softplus, True),
        (nn.Softplus(), True),
        (nn.Softplus(beta=2), False),
        (nn.Softplus(threshold=5), False),
        (lambda x: functional.softplus(x, beta=1), False),  # by keyword: rare, and left alone
        (lambda x: functional.softplus(x.double()).float(), False),
        (nn.ReLU(), False),
    ],
)
def test_a_search_uses_it(activation, replaced, counted):
    with seeded("network"):
        model, images = Network(activation).eval(), torch.rand(16, 3, 8, 8)
    oracle = Oracle(model, 16, CPU)
    with frozen(model):
        expected = oracle.exact(images)
        assert not counted  # verdicts are torch's own
        assert torch.allclose(oracle.logits(images), expected, atol=1e-6)
        assert len(counted) == replaced
        logits, slope = oracle.gradient(images, lambda z: z.square().sum(dim=1))
        assert len(counted) == 2 * replaced
        batch = images.clone().requires_grad_()
        (own,) = torch.autograd.grad(model(batch).square().sum(), batch)
    assert torch.allclose(logits, expected, atol=1e-6)
    assert torch.allclose(slope, own, atol=1e-6)


def test_outside_it_is_torch_s_own(counted):
    with QuickSoftplus():
        functional.softplus(torch.ones(2))
    functional.softplus(torch.ones(2))
    assert len(counted) == 1
