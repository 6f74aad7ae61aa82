"""A small voting classifier that knows its task, its images, and a folder to work in."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from robust0.certificates.partition import StridedPartition
from robust0.models.voting import ViewVoting
from robust0.rng import seeded

FACTORY = """
from torch import nn

from robust0.certificates.partition import StridedPartition
from robust0.models.voting import AblationSmoothing, MaskCover, ViewVoting

SIDES = {"height": 12, "width": 12}


def inner():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 3))


def make(rule="plurality"):
    return ViewVoting(inner(), StridedPartition(**SIDES, stride=4), rule, 3)


def run_off():
    return make("run-off")


def whole():
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(3), nn.Flatten())
    return nn.Sequential(pool, nn.Linear(36, 3))


def masks():
    return MaskCover(whole(), StridedPartition(**SIDES, stride=2), 1, 3)


def ablating():
    return AblationSmoothing(whole(), 20, 3)


def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 144, 3))
"""
RUN = (
    "certify", "votes.safetensors", "--factory", "toy_votes:make", "--data", "npz:toy.npz",
    "--eps", "1,2,4",
)  # fmt: skip


@dataclass(frozen=True)
class Toy:
    """A voting classifier of a three-class task on 12x12 images."""

    network: ViewVoting
    pixels: Tensor  # (96, 3, 12, 12) uint8
    labels: Tensor

    @property
    def images(self) -> Tensor:
        return self.pixels / 255


@pytest.fixture(scope="session")
def toy() -> Toy:
    with seeded("certify toy"):
        inner = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 3))
        partition = StridedPartition(height=12, width=12, stride=4)
        network = ViewVoting(inner, partition, "plurality", 3)
        templates = nn.functional.interpolate(torch.rand(3, 3, 2, 2), size=(12, 12))

        def batch(count: int) -> tuple[Tensor, Tensor]:
            labels = torch.randint(3, (count,))
            noise = 0.8 * torch.randn(count, 3, 12, 12)
            return (templates[labels] + noise).clamp(0, 1), labels

        optimizer = torch.optim.Adam(inner.parameters(), 1e-2)
        for _ in range(60):
            images, labels = batch(32)
            optimizer.zero_grad()
            nn.functional.nll_loss(network.surrogate(images), labels).backward()
            optimizer.step()
        images, labels = batch(96)
        labels[::12] = (labels[::12] + 1) % 3  # some labels are wrong, so some answers are
    return Toy(network.eval(), (images * 255).round().to(torch.uint8), labels)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def settle(folder: Path, toy: Toy, patch: pytest.MonkeyPatch) -> None:
    """Put the toy's files into a folder and work there, offline."""
    weights = {name: value.contiguous() for name, value in toy.network.network.state_dict().items()}
    save_file(weights, folder / "votes.safetensors")
    images = toy.pixels.permute(0, 2, 3, 1).numpy()
    np.savez(folder / "toy.npz", images=images, labels=toy.labels.numpy())
    (folder / "toy_votes.py").write_text(FACTORY)
    patch.chdir(folder)
    patch.syspath_prepend(folder)
    patch.setenv("ROBUST0_CACHE", str(folder / "cache"))
    patch.setenv("ROBUST0_OFFLINE", "1")


@pytest.fixture(scope="module")
def ground(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the toy's files, which is the working directory of a module's tests."""
    folder = tmp_path_factory.mktemp("ground")
    with pytest.MonkeyPatch.context() as patch:
        settle(folder, toy, patch)
        yield folder
