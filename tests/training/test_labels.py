"""Targets: plain cross entropy before self-adaptive labels start, distributions afterwards."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from robust0.losses import cross_entropy
from robust0.rng import Stream
from robust0.training.methods.labels import SelfAdaptiveLabels, SmoothedLabels, one_hot
from robust0.training.methods.objectives import Answers

LABELS = torch.tensor([0, 2, 1, 2, 0, 1])


def logits(seed: int, count: int = 6) -> torch.Tensor:
    ids = torch.arange(count)
    return 3 * Stream.of("test", seed).normal(ids, torch.zeros_like(ids), 3)


def test_before_their_start_self_adaptive_labels_are_plain_cross_entropy():
    source = SelfAdaptiveLabels(start=0.5).build(LABELS, 3)
    rows = torch.arange(6)
    answers = Answers(None, None, LABELS, *source.observe(rows, logits(1), progress=0.49))
    torch.testing.assert_close(
        answers.cross_entropy(logits(2)),
        cross_entropy(logits(2), LABELS).mean(),
    )
    assert torch.equal(source.table, one_hot(LABELS, 3))


def test_after_their_start_targets_are_the_moving_average_of_predictions():
    source = SelfAdaptiveLabels(momentum=0.9, start=0.5).build(LABELS, 3)
    rows = torch.tensor([4, 1])
    target, weight = source.observe(rows, logits(1, 2), progress=0.5)
    expected = 0.9 * one_hot(LABELS[rows], 3) + 0.1 * logits(1, 2).softmax(dim=1)
    torch.testing.assert_close(target, expected)
    torch.testing.assert_close(weight, expected.amax(dim=1))
    untouched = torch.tensor([0, 2, 3, 5])
    assert torch.equal(source.current(untouched), one_hot(LABELS[untouched], 3))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.floats(0, 0.99))
def test_targets_stay_on_the_simplex(order, momentum):
    source = SelfAdaptiveLabels(momentum=momentum, start=0.0).build(LABELS, 3)
    for seed, row in enumerate(order):
        source.observe(torch.tensor([row]), 50 * logits(seed, 1), progress=1.0)
    assert (source.table >= 0).all()
    torch.testing.assert_close(source.table.sum(dim=1), torch.ones(6))


def test_the_prediction_is_detached():
    source = SelfAdaptiveLabels(start=0.0).build(LABELS, 3)
    seen = logits(1).requires_grad_()
    target, _ = source.observe(torch.arange(6), seen, progress=1.0)
    assert not target.requires_grad


def test_smoothed_labels_spread_their_amount_evenly():
    target, weight = SmoothedLabels(0.3).build(LABELS, 3).observe(torch.tensor([1]), None, 1.0)
    torch.testing.assert_close(target, torch.tensor([[0.1, 0.1, 0.8]]))
    assert weight.tolist() == [1.0]
