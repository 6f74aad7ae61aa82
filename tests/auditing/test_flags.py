"""Each check against a real network that deserves it."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from robust0.auditing.flags import check_behaviour
from robust0.models.fast.oracle import Oracle, frozen
from robust0.threats import Threat

CPU = torch.device("cpu")


class Wrapped(nn.Module):
    """A network with something around it."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images):
        return self.network(images)


class Noisy(Wrapped):
    def forward(self, images):
        keep = torch.empty_like(images).bernoulli_(0.9)  # dropout that eval mode cannot stop
        return self.network(images * keep)


class Probabilities(Wrapped):
    def forward(self, images):
        return self.network(images).softmax(dim=1)


class LogProbabilities(Wrapped):
    def forward(self, images):
        return self.network(images).log_softmax(dim=1)


class StopGradient(Wrapped):
    def forward(self, images):
        return self.network(images.detach()) + 0 * images.sum()


class Quantised(Wrapped):
    def forward(self, images):
        return self.network((images * 8).round() / 8)  # rounding has no gradient


class Purifying(Wrapped):
    """Optimises its input before answering."""

    def forward(self, images):
        with torch.enable_grad():
            moved = images.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.network(moved).logsumexp(dim=1).sum(), moved)
        return self.network(images + 1e-3 * slope.sign())


class Cunning(Purifying):
    """Does so only where somebody wants a gradient."""

    def forward(self, images):
        return super().forward(images) if torch.is_grad_enabled() else self.network(images)


class BatchStatistics(Wrapped):
    def forward(self, images):
        return self.network(images - images.mean(dim=0, keepdim=True))


class Constant(Wrapped):
    def forward(self, images):
        return torch.ones(len(images), 4) + 0 * self.network(images)


def flags(network, toy, *, unit="pixel", count=40):
    images, labels = toy.images[:count], toy.labels[:count]

    def fetch(positions):
        index = torch.tensor(list(positions))
        return images[index], labels[index], index

    with frozen(network):
        oracle = Oracle(network, 16, CPU)
        right = oracle.exact(images).argmax(dim=1) == labels
        correct = right.nonzero()[:, 0].tolist()
        return list(
            check_behaviour(oracle, fetch, range(min(16, count)), correct, Threat.of(6, unit), 0)
        )


@pytest.mark.parametrize("unit", ["pixel", "feature"])
def test_an_honest_network_raises_none(toy, unit):
    assert flags(Wrapped(toy.network), toy, unit=unit) == []
    assert flags(LogProbabilities(toy.network), toy, unit=unit) == []


@pytest.mark.parametrize(
    ("defence", "expected"),
    [
        (Noisy, {"randomised-model"}),
        (Probabilities, {"probabilities"}),
        (StopGradient, {"zero-gradients", "unbounded-control"}),
        (Quantised, {"zero-gradients", "unbounded-control"}),
        (Purifying, {"dynamic-defence"}),
        (Cunning, {"dynamic-defence"}),
        (BatchStatistics, {"batch-dependent-model"}),
        (Constant, {"zero-gradients", "unbounded-control"}),
    ],
)
def test_each_defence_raises_its_flag(toy, defence, expected):
    found = flags(defence(toy.network), toy)
    assert expected <= {flag.name for flag in found}
    assert all(flag.fatal for flag in found)


def test_a_noisy_network_is_not_called_batch_dependent(toy):
    assert "batch-dependent-model" not in {f.name for f in flags(Noisy(toy.network), toy)}


def test_flags_are_the_same_each_time(toy):
    for defence in (StopGradient, Purifying):
        first = flags(defence(toy.network), toy, count=8)
        assert first == flags(defence(toy.network), toy, count=8) != []


def test_zero_gradients_are_counted_for_both_losses(toy):
    found = {flag.name: flag for flag in flags(StopGradient(toy.network), toy, count=8)}
    assert "7 of 7 (cross entropy) and 7 of 7 (margin)" in found["zero-gradients"].message


def test_infinite_gradients_are_noted(toy):
    class Gamma(Wrapped):
        def forward(self, images):
            return self.network(images**0.9)  # infinitely steep where a pixel is black

    pixels = toy.pixels.clone()
    pixels[:, :, 0, 0] = 0
    found = flags(Gamma(toy.network), replace(toy, pixels=pixels))
    (flag,) = [flag for flag in found if flag.name == "non-finite-gradients"]
    assert not flag.fatal


def test_the_watch_on_autograd_is_taken_off_again(toy):
    before = torch.autograd._engine_run_backward
    flags(Purifying(toy.network), toy)
    assert torch.autograd._engine_run_backward is before


def test_without_a_correct_image_there_is_nothing_to_attack(toy):
    images, labels = toy.images[:4], toy.labels[:4]
    with frozen(toy.network):
        oracle = Oracle(toy.network, 16, CPU)
        fetch = lambda positions: (images, labels, torch.arange(4))  # noqa: E731
        assert list(check_behaviour(oracle, fetch, range(4), [], Threat.of(2), 0)) == []
