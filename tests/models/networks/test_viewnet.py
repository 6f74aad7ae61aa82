"""The network of small views: its quicker form is the same function."""

import pytest
import timm
import torch
from torch import nn

import robust0.models  # noqa: F401 - registers our networks
from robust0.models.fast import winograd
from robust0.models.normalize import Normalized
from robust0.rng import seeded


def viewnet(**options):
    with seeded("viewnet"):
        network = timm.create_model("viewnet", num_classes=5, **options)
        for norm in (m for m in network.modules() if isinstance(m, nn.BatchNorm2d)):
            nn.init.uniform_(norm.weight, 0.5, 2)
            nn.init.normal_(norm.bias)
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)
    return network.eval()


def views(count, side):
    with seeded("views", count, side):
        return torch.rand(count, 4, side, side)


@pytest.mark.parametrize(
    ("side", "options", "tiles"),
    [
        (4, {"widths": [96], "depths": [2]}, 4),  # the stem has too few channels
        (7, {"widths": [16, 96], "depths": [1, 2]}, 3),
        (7, {"widths": [96], "depths": [1]}, 0),
        (5, {"widths": [8, 16], "depths": [1, 1]}, 0),
    ],
)
def test_settled_it_answers_the_same(side, options, tiles, monkeypatch):
    network, used, real = viewnet(**options), [], winograd.convolve_small
    monkeypatch.setattr(
        winograd, "convolve_small", lambda *given: (used.append(len(given)), real(*given))[1]
    )
    images = views(6, side).requires_grad_()
    with torch.no_grad():
        plain, settled = network(images), network.settled()(images)
    assert torch.allclose(settled, plain, atol=1e-4 * plain.std().item())
    assert not torch.equal(settled, plain)  # else nothing was folded
    assert len(used) == tiles
    network.requires_grad_(False)
    slopes = [
        torch.autograd.grad(answer(images)[:, 1].sum(), images)[0]
        for answer in (network, network.settled())
    ]
    assert torch.allclose(*slopes, atol=1e-4 * slopes[0].std().item())


@torch.no_grad()
def test_it_follows_the_weights():
    inner, images = viewnet(widths=[96], depths=[1]), views(3, 4)
    network = Normalized(inner, [0.5] * 4, [0.2] * 4)
    before = network.settled()(images)
    for weight in network.parameters():
        weight.mul_(1.5)
    after = network.settled()(images)
    assert not torch.allclose(before, after)
    assert torch.allclose(after, network(images), atol=1e-4 * after.std().item())


def test_a_network_without_a_quicker_form_is_its_own():
    network = Normalized(nn.Flatten(), [0.0], [1.0])
    assert network.settled() is network
