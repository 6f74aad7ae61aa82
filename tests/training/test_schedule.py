"""Learning rates at the places the paper names."""

import pytest
import torch
from torch import nn

from robust0.training.optimizers import SGD, AdamW
from robust0.training.schedule import OneCycle, Steps


def test_the_papers_schedule_divides_by_ten_at_a_quarter_and_three_quarters():
    schedule = Steps()
    scales = [schedule.scale(step, 400) for step in (0, 99, 100, 299, 300, 399)]
    assert scales == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_one_cycle_rises_then_falls_to_its_end(shape):
    schedule = OneCycle(warmup=0.2, start=0.1, end=0.01, shape=shape)
    scales = [schedule.scale(step, 1000) for step in range(1000)]
    assert scales[0] == pytest.approx(0.1)
    assert max(scales) == scales[200] == pytest.approx(1.0)
    assert scales[:201] == sorted(scales[:201])
    assert scales[200:] == sorted(scales[200:], reverse=True)
    assert scales[-1] == pytest.approx(0.01, abs=0.01)


def test_decay_can_spare_biases_and_norms():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    optimizer = AdamW().build(network)
    decayed = {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    assert decayed[id(network[0].weight)] == 0.05
    assert decayed[id(network[0].bias)] == decayed[id(network[1].weight)] == 0.0
    assert len(decayed) == 4


def test_sgd_follows_the_textbook_step():
    network = nn.Linear(2, 1, bias=False)
    before = network.weight.detach().clone()
    optimizer = SGD(lr=0.1, weight_decay=0.01).build(network)
    network(torch.tensor([[1.0, 2.0]])).sum().backward()
    optimizer.step()
    torch.testing.assert_close(
        network.weight.detach(), before - 0.1 * (torch.tensor([[1.0, 2.0]]) + 0.01 * before)
    )


def test_a_peak_scales_the_whole_cycle():
    whole, part = OneCycle(), OneCycle(peak=0.1)
    assert [part.scale(step, 20) for step in range(20)] == pytest.approx(
        [0.1 * whole.scale(step, 20) for step in range(20)]
    )
