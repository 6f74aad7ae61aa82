"""Small networks with known properties, and a driver that runs an attack to its outcomes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from robust0.attacks.base import Attack, Reply, Rows, State
from robust0.attacks.engine import Outcome, Waiting, search
from robust0.models.fast.oracle import Oracle, frozen
from robust0.rng import Stream, seeded
from robust0.threats import Threat

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Problem:
    """A network and images it classifies as their labels."""

    model: nn.Module
    images: Tensor
    labels: Tensor
    classes: int

    def rows(self, threat: Threat, *, seed: int = 0) -> Rows:
        ids = torch.arange(len(self.images))
        stream = Stream.of("test", seed)
        return Rows(self.images, self.labels, ids, threat, stream, self.classes)

    def first(self, count: int) -> "Problem":
        return Problem(self.model, self.images[:count], self.labels[:count], self.classes)


class Rounded(torch.autograd.Function):
    """Multiples of 1/64 forward; multiples of 1/1024 backward."""

    @staticmethod
    def forward(ctx, values):
        return (values * 64).round() / 64

    @staticmethod
    def backward(ctx, slope):
        return (slope * 1024).round() / 1024


class ExactNet(nn.Module):
    """Small integer weights behind a rounded input: every sum is exact in float32, in any order."""

    def __init__(self, shape: tuple[int, int, int], classes: int):
        super().__init__()
        channels, height, width = shape
        self.conv = nn.Conv2d(channels, 4, 3, padding=1)
        self.head = nn.Linear(4 * height * width, classes)
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(torch.randint(-2, 3, weight.shape))

    def forward(self, images: Tensor) -> Tensor:
        return Rounded.apply(self.head(self.conv(Rounded.apply(images)).relu().flatten(1)))


class LinearNet(nn.Module):
    """Two classes; the first one's lead is a linear score of the image."""

    def __init__(self, weight: Tensor, bias: float):
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), bias

    def forward(self, images: Tensor) -> Tensor:
        score = (images * self.weight).flatten(1).sum(dim=1) + self.bias
        return torch.stack([score / 2, -score / 2], dim=1)


def conv_net(channels: int, classes: int) -> nn.Module:
    norm = nn.BatchNorm2d(6)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 3, padding=1),
        norm,
        nn.ReLU(),
        nn.Conv2d(6, 6, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(24, classes),
    )


def posed(model: nn.Module, images: Tensor) -> Problem:
    """The problem in which the network's own predictions are the labels."""
    with frozen(model), torch.no_grad():
        logits = model(images)
    return Problem(model, images, logits.argmax(dim=1), logits.shape[1])


@pytest.fixture(scope="session")
def small() -> Callable[..., Problem]:
    """An untrained convolutional network and random images of any shape."""

    def build(
        count: int = 20, shape: tuple[int, int, int] = (3, 6, 5), classes: int = 4, seed: int = 0
    ) -> Problem:
        with seeded("small", seed):
            return posed(conv_net(shape[0], classes), torch.rand(count, *shape))

    return build


@pytest.fixture(scope="session")
def exact() -> Problem:
    """64 images and a network whose sums do not depend on the shape of a call."""
    with seeded("exact"):
        images = torch.randint(0, 5, (64, 3, 6, 5)) / 4
        return posed(ExactNet((3, 6, 5), 4), images)


@pytest.fixture(scope="session")
def trained() -> Problem:
    """A network trained the standard way until it knows a noisy four-class task."""
    with seeded("trained"):
        templates = nn.functional.interpolate(torch.rand(4, 3, 3, 3), size=(10, 12))
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * 30, 4),
        )

        def batch(count: int) -> tuple[Tensor, Tensor]:
            labels = torch.randint(4, (count,))
            noise = 0.25 * torch.randn(count, 3, 10, 12)
            return (templates[labels] + noise).clamp(0, 1), labels

        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        for _ in range(120):
            images, labels = batch(64)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        optimizer.zero_grad()
        images, labels = batch(64)
    problem = posed(model, images)
    right = problem.labels == labels
    assert right.float().mean() > 0.95
    return Problem(model, images[right], labels[right], 4)


@pytest.fixture(scope="session")
def linear() -> Callable[..., Problem]:
    """A linear network and images whose fewest fooling sites are all the same number."""

    def build(fewest: int, threat: Threat, *, count: int = 16, seed: int = 0) -> Problem:
        with seeded("linear", seed):
            weight = 0.2 * torch.randn(3, 8, 9)
            images = torch.rand(4000, 3, 8, 9)
        lead = 5.0 if threat.unit == "pixel" else 2.0
        scores = (images * weight).flatten(1).sum(dim=1)
        model = LinearNet(weight, lead - float(scores.mean()))
        needed = torch.tensor([fewest_sites(weight, model.bias, image, threat) for image in images])
        chosen = images[needed == fewest][:count]
        assert len(chosen) == count
        return Problem(model, chosen, torch.zeros(count, dtype=torch.int64), 2)

    return build


def site_gains(weight: Tensor, images: Tensor, threat: Threat) -> Tensor:
    """(B, S) how far a linear score falls if one site takes its best colour in [0, 1]."""
    return threat.view(weight * images - weight.clamp(max=0)).sum(dim=1)


def fewest_sites(weight: Tensor, bias: float, image: Tensor, threat: Threat) -> int:
    """Sites needed to push a linear score below zero; they act independently: greedy is exact."""
    score = (weight * image).sum() + bias
    gain = site_gains(weight, image[None], threat)[0]
    return int((gain.sort(descending=True).values.cumsum(dim=0) <= score).sum()) + 1


@pytest.fixture(scope="session")
def gains() -> Callable[[Tensor, Tensor, Threat], Tensor]:
    return site_gains


@pytest.fixture(scope="session")
def drive() -> Callable[..., list[Outcome]]:
    """Runs the engine over a problem; outcomes by image id."""

    def run(
        attack: Attack[State],
        problem: Problem,
        threat: Threat,
        *,
        order: Sequence[int] | None = None,
        rows: int = 16,
        lanes: int = 1,
        seed: int = 0,
    ) -> list[Outcome]:
        def fetch(positions: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
            index = torch.tensor(positions)
            return problem.images[index], problem.labels[index], index

        waiting = Waiting(range(len(problem.images)) if order is None else order, fetch)
        with frozen(problem.model):
            oracle = Oracle(problem.model, rows, CPU, lanes=lanes)
            found = [
                event
                for event in search(attack, attack.kind, oracle, waiting, threat, seed)
                if isinstance(event, Outcome)
            ]
        return sorted(found, key=lambda outcome: outcome.image)

    return run


@pytest.fixture(scope="session")
def play() -> Callable[..., Tensor]:
    """Plays the engine's part for one query of every row: all rows go on, hit or not."""

    def query(attack: Attack[State], state: State, model: nn.Module) -> Tensor:
        images, wants = attack.ask(state), attack.wants_gradient(state)
        with frozen(model):
            oracle = Oracle(model, max(16, len(images)), CPU)
            for gradient in (True, False):
                rows = (wants == gradient).nonzero()[:, 0]
                part = state.take(rows)
                if gradient and len(rows):
                    logits, slope = oracle.gradient(
                        images[rows], lambda answer, part=part: attack.objective(part, answer)
                    )
                    attack.tell(part, Reply(logits, state.threat.view(slope)))
                elif len(rows):
                    attack.tell(part, Reply(oracle.logits(images[rows])))
                state.put(rows, part)
        return images

    return query
