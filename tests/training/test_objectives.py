"""The losses against cases computed by hand."""

import math

import pytest
import torch

from robust0.training.methods.objectives import (
    AdversarialObjective,
    Answers,
    CleanObjective,
    TradeoffObjective,
    TradesObjective,
)

LN = math.log
# Two images, two classes. Softmax of (ln 3, 0) is (3/4, 1/4); of (0, 0) is (1/2, 1/2).
CLEAN = torch.tensor([[LN(3), 0.0], [0.0, 0.0]])
ADVERSARIAL = torch.tensor([[0.0, 0.0], [0.0, LN(3)]])
TARGET = torch.tensor([[0.9, 0.1], [0.0, 1.0]])
WEIGHT = torch.tensor([0.9, 1.0])


def answers(clean, adversarial):
    return Answers(clean, adversarial, TARGET.argmax(dim=1), TARGET, WEIGHT)


def total(parts):
    return sum(part.item() for part in parts.values())


def test_fast_ls_loss_by_hand():
    parts = TradesObjective(beta=6.0)(answers(CLEAN, ADVERSARIAL))
    first = -(0.9 * LN(3 / 4) + 0.1 * LN(1 / 4))
    second = LN(2)
    weighted = (0.9 * first + 1.0 * second) / 1.9
    kl_first = 3 / 4 * LN((3 / 4) / (1 / 2)) + 1 / 4 * LN((1 / 4) / (1 / 2))
    kl_second = 1 / 2 * LN((1 / 2) / (1 / 4)) + 1 / 2 * LN((1 / 2) / (3 / 4))
    assert parts["clean"].item() == pytest.approx(weighted, rel=1e-6)
    assert parts["divergence"].item() == pytest.approx(6 * (kl_first + kl_second) / 2, rel=1e-5)


def test_gradients_flow_through_both_arguments_of_the_divergence():
    clean, adversarial = CLEAN.clone().requires_grad_(), ADVERSARIAL.clone().requires_grad_()
    TradesObjective()(answers(clean, adversarial))["divergence"].backward()
    assert clean.grad.abs().sum() > 0
    assert adversarial.grad.abs().sum() > 0


def test_tradeoff_mixes_the_two_cross_entropies():
    clean = total(CleanObjective()(answers(CLEAN, None)))
    attacked = total(AdversarialObjective()(answers(None, ADVERSARIAL)))
    mixed = total(TradeoffObjective(0.75)(answers(CLEAN, ADVERSARIAL)))
    assert mixed == pytest.approx(0.25 * clean + 0.75 * attacked)
