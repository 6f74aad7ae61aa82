"""The inner attack: its budget, its options, and the model it must leave alone."""

import copy

import pytest
import torch
from torch import nn

from robust0.losses import cross_entropy
from robust0.rng import Stream
from robust0.threat import Threat
from robust0.training.methods.inner import Lesson, SparsePGDInner
from robust0.training.methods.labels import one_hot

PIXELS = Threat(pixels=6)


def network(seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.Softplus(),
        nn.Flatten(),
        nn.Linear(512, 4),
    )
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
    return net.train()


def lesson(
    net: nn.Module, threat: Threat = PIXELS, *, projected: bool = True, count: int = 24
) -> Lesson:
    images = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        labels = copy.deepcopy(net).eval()(images).argmax(dim=1)
    labels[: count // 4] = (labels[: count // 4] + 1) % 4  # some are misclassified already
    return Lesson(
        images,
        one_hot(labels, 4),
        labels,
        torch.arange(count),
        Stream.of("inner"),
        projected,
        threat,
    )


def losses(net: nn.Module, images: torch.Tensor, given: Lesson) -> torch.Tensor:
    with torch.no_grad():
        return cross_entropy(copy.deepcopy(net).eval()(images), given.target)


@pytest.mark.parametrize("threat", [Threat(pixels=6), Threat(features=10)])
@pytest.mark.parametrize("steps", [1, 20])
def test_images_stay_in_budget_and_box_and_lose_accuracy(threat, steps):
    net = network()
    given = lesson(net, threat)
    found = SparsePGDInner(steps=steps)(net, given)
    assert threat.count(given.images, found).max() <= threat.budget
    assert found.min() >= 0
    assert found.max() <= 1
    assert losses(net, found, given).mean() > losses(net, given.images, given).mean()


@pytest.mark.parametrize("steps", [1, 20])
@pytest.mark.parametrize("select", ["last", "best"])
def test_the_model_is_left_as_it_was(steps, select):
    net = network()
    net[0].weight.grad = torch.ones_like(net[0].weight)
    before, state = copy.deepcopy(net.state_dict()), torch.random.get_rng_state()
    SparsePGDInner(steps=steps, select=select, loss="kl")(net, lesson(net))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(net[0].weight.grad, torch.ones_like(net[0].weight))
    assert net[0].bias.grad is None
    assert all(weight.requires_grad for weight in net.parameters())
    assert net.training
    assert net[1].training
    assert torch.equal(state, torch.random.get_rng_state())


def test_misclassified_images_can_be_skipped():
    net = network()
    given = lesson(net)
    attack = SparsePGDInner(steps=5, select="best", skip_misclassified=True, stop_early=True)
    found = attack(net, given)
    wrong = losses(net, given.images, given) * 0 + (
        copy.deepcopy(net).eval()(given.images).argmax(dim=1) != given.labels
    )
    assert wrong.sum() == 6
    assert torch.equal(found[:6], given.images[:6])
    assert not torch.equal(found[6:], given.images[6:])


def test_best_never_lowers_the_loss_and_beats_last():
    net = network()
    given = lesson(net)
    clean = losses(net, given.images, given)
    best = losses(net, SparsePGDInner(steps=8, select="best")(net, given), given)
    last = losses(net, SparsePGDInner(steps=8)(net, given), given)
    assert (best >= clean - 1e-6).all()
    assert (best >= last - 1e-5).all()


def test_early_stopping_returns_the_first_misclassified_point():
    net = network()
    given = lesson(net, Threat(pixels=12))
    late = SparsePGDInner(steps=20, select="best")(net, given)
    early = SparsePGDInner(steps=20, select="best", stop_early=True)(net, given)
    fallen = copy.deepcopy(net).eval()(early).argmax(dim=1) != given.labels
    assert fallen.any()
    assert losses(net, early, given)[fallen].mean() < losses(net, late, given)[fallen].mean()


def test_the_coin_decides_between_projected_and_unprojected():
    net = network()
    rand = SparsePGDInner(steps=4)
    for projected, fixed in ((True, "projected"), (False, "unprojected")):
        given = lesson(net, projected=projected)
        expected = SparsePGDInner(steps=4, gradient=fixed)(net, given)
        assert torch.equal(rand(net, given), expected)
    assert not torch.equal(
        rand(net, lesson(net, projected=True)), rand(net, lesson(net, projected=False))
    )


def test_kl_uses_the_models_own_prediction_not_the_label():
    net = network()
    given = lesson(net)
    other = Lesson(
        given.images,
        given.target.flip(1),
        given.labels,
        given.ids,
        given.stream,
        given.projected,
        given.threat,
    )
    attack = SparsePGDInner(loss="kl")
    assert torch.equal(attack(net, given), attack(net, other))
