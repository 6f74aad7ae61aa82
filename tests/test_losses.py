import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.losses import adaptive, cross_entropy, divergence, margin

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, 3.0], [-4.0, -2.0, -3.0]])
LABELS = torch.tensor([0, 1, 2])


def test_margin_is_the_lead_over_the_best_other_class():
    assert margin(LOGITS, LABELS).tolist() == [1.5, 0.0, -1.0]


def test_margin_leaves_the_logits_alone():
    before = LOGITS.clone()
    margin(LOGITS, LABELS)
    assert torch.equal(before, LOGITS)


def test_margin_pushes_the_label_and_its_runner_up():
    logits = LOGITS.clone().requires_grad_()
    margin(logits, LABELS)[0].backward()
    assert logits.grad.tolist() == [[1.0, 0.0, -1.0], [0.0] * 3, [0.0] * 3]


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=4, max_size=4),
    st.integers(0, 3),
)
@settings(max_examples=100, deadline=None)
def test_a_negative_margin_is_a_misclassification(values, label):
    logits = torch.tensor([values])
    lead = float(margin(logits, torch.tensor([label])))
    assert (lead < 0) == any(value > values[label] for value in values)


def test_adaptive_is_the_negative_margin_below_a_half_and_cross_entropy_from_there_on():
    logits = torch.tensor([[2.0, 1.5, 0.0], [2.0, 1.75, 0.0], [0.0, 2.0, 0.0], [9.0, 0.0, 0.0]])
    labels = torch.zeros(4, dtype=torch.int64)
    target = torch.tensor([[0.8, 0.1, 0.1]]).expand(4, 3)
    entropy = cross_entropy(logits, target)
    expected = [entropy[0].item(), -0.25, 2.0, entropy[3].item()]
    assert adaptive(logits, labels, target).tolist() == expected


def test_cross_entropy_is_minus_the_log_probability():
    expected = -LOGITS.log_softmax(dim=1)[torch.arange(3), LABELS]
    assert torch.allclose(cross_entropy(LOGITS, LABELS), expected)
    soft = torch.tensor([[0.7, 0.2, 0.1]]).expand(3, -1)
    assert torch.allclose(cross_entropy(LOGITS, soft), -(soft * LOGITS.log_softmax(1)).sum(dim=1))


def test_divergence_is_zero_only_between_equal_predictions():
    shifted = LOGITS + 5
    assert divergence(LOGITS, shifted).abs().max() < 1e-6
    assert bool((divergence(LOGITS, LOGITS.flip(1))[[0, 2]] > 0.1).all())
    p, q = LOGITS.softmax(1), LOGITS.flip(0).softmax(1)
    assert torch.allclose(divergence(LOGITS, LOGITS.flip(0)), (p * (p / q).log()).sum(dim=1))


@pytest.mark.parametrize("which", [0, 1])
def test_divergence_has_a_gradient_on_both_sides(which):
    sides = [LOGITS.clone().requires_grad_(), LOGITS.flip(0).requires_grad_()]
    divergence(*sides).sum().backward()
    assert float(sides[which].grad.abs().sum()) > 0


@pytest.mark.parametrize("lead", [0.0, 5.0, 17.5, 30.0, 80.0, -5.0, -80.0])
def test_cross_entropy_and_its_slope_survive_confidence(lead):
    """Torch's own is exactly zero from a margin of 17 on, and its slope forgets the label."""
    logits = torch.tensor([[lead, 0.0, -3.0]])
    exact = logits.double().requires_grad_()
    ours = logits.clone().requires_grad_()
    label = torch.tensor([0])
    expected = torch.nn.functional.softplus(
        exact[:, 1:].logsumexp(dim=1) - exact[:, 0], threshold=1e9
    )
    (expected_slope,) = torch.autograd.grad(expected.sum(), exact)
    found = cross_entropy(ours, label)
    (slope,) = torch.autograd.grad(found.sum(), ours)
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=0)
    assert torch.allclose(slope.double(), expected_slope, rtol=1e-5, atol=0)
