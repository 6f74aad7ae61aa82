"""The inner attack: its budget, its options, and the model it must leave alone."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from robust0.attacks.sparse_pgd import SparsePGD
from robust0.losses import cross_entropy, margin
from robust0.models.fast.oracle import frozen
from robust0.rng import Stream
from robust0.threats import Threat
from robust0.training.methods.climb import Climb
from robust0.training.methods.inner import Lesson, SparsePGDInner
from robust0.training.methods.labels import one_hot

PIXELS = Threat.of(6)


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


@pytest.mark.parametrize("threat", [Threat.of(6), Threat.of(10, "feature")])
@pytest.mark.parametrize("steps", [1, 20])
def test_images_stay_in_budget_and_box_and_lose_accuracy(threat, steps):
    net = network()
    given = lesson(net, threat)
    found = SparsePGDInner(steps=steps)(net, given)
    assert threat.distance(given.images, found).max() <= threat.budget
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
    given = lesson(net, Threat.of(12))
    late = SparsePGDInner(steps=20, select="best")(net, given)
    early = SparsePGDInner(steps=20, select="best", stop_early=True)(net, given)
    fallen = copy.deepcopy(net).eval()(early).argmax(dim=1) != given.labels
    assert fallen.any()
    assert losses(net, early, given)[fallen].mean() < losses(net, late, given)[fallen].mean()


def test_one_switch_is_both_halves_of_early_stopping_and_each_can_be_set_alone():
    net = network()
    given = lesson(net, Threat.of(12))
    both = SparsePGDInner(steps=5, select="best", skip_misclassified=True, stop_early=True)
    switched = SparsePGDInner(steps=5, select="best", early_stopping=True)
    assert torch.equal(both(net, given), switched(net, given))
    parts = replace(switched, skip_misclassified=False)
    assert (parts.skips, parts.stops) == (False, True)
    assert not torch.equal(parts(net, given)[:6], given.images[:6])
    parts = replace(switched, stop_early=False)
    assert (parts.skips, parts.stops) == (True, False)


@pytest.mark.parametrize("select", ["last", "best"])
def test_a_success_at_the_random_start_neither_stops_an_image_nor_counts(select):
    class Lost(nn.Module):
        """Right on clean images, wrong on any other: the random start fools it already."""

        def forward(self, images):
            looks.append(len(images))
            same = (images - given.images[: len(images)]).flatten(1).abs().sum(dim=1) == 0
            right = torch.where(same, 50.0, -50.0)[:, None] * given.target[: len(images)]
            brightness = images.flatten(1).mean(dim=1, keepdim=True)
            return right + brightness * torch.tensor([0.0, 1.0, 0.0, 0.0])

    looks: list[int] = []
    given = replace(lesson(network()), labels=torch.zeros(24, dtype=torch.int64))
    given = replace(given, target=one_hot(given.labels, 4))
    attack = SparsePGDInner(steps=3, select=select, early_stopping=True)
    found = attack(Lost(), given)
    # Clean, the start, the first step, at which all leave.
    assert looks == [24, 24, 24]
    climb = Climb(attack, SparsePGD(), network(), given)
    start = climb.attack.ask(climb.attack.start(climb._rows()))
    assert not torch.equal(found, start)


def test_the_adaptive_loss_attacks_near_images_by_margin_and_safe_ones_by_cross_entropy():
    net = network()
    given = lesson(net)
    attack = SparsePGDInner(loss="adaptive")
    climb = Climb(attack, SparsePGD(projected=True), net, given)
    with frozen(net):
        images = climb.attack.ask(climb.attack.start(climb._rows()))
        logits, slope = climb._gradient(images)
        leaf = images.clone().requires_grad_()
        near = margin(logits, given.labels) < 0.5
        by_margin = torch.autograd.grad(-margin(net(leaf), given.labels).sum(), leaf)[0]
        by_entropy = torch.autograd.grad(cross_entropy(net(leaf), given.target).sum(), leaf)[0]
    assert near.any()
    assert not near.all()
    expected = torch.where(near[:, None, None, None], by_margin, by_entropy)
    torch.testing.assert_close(slope, given.threat.view(expected))
    assert not torch.equal(attack(net, given), SparsePGDInner()(net, given))


def test_the_adaptive_attack_keeps_the_iterate_of_highest_cross_entropy():
    net = network()
    given = lesson(net)
    clean = losses(net, given.images, given)
    best = losses(net, SparsePGDInner(steps=8, select="best", loss="adaptive")(net, given), given)
    assert (best >= clean - 1e-6).all()


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
