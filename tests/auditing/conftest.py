"""A small trained network, its images, and audits of it: in memory, in a folder, by command."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from robust0.auditing.given import given_images
from robust0.auditing.job import AuditJob
from robust0.commands.build_audit import AuditRequest, build_audit
from robust0.models.normalize import bare
from robust0.recipes.load import read_audit
from robust0.rng import seeded
from robust0.runs.subject import given_subject

CPU = torch.device("cpu")
FACTORY = """
from torch import nn


def make():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1),
        nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30, 4),
    )
"""


def make_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1),
        nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30, 4),
    )  # fmt: skip


@dataclass(frozen=True)
class Toy:
    """A network that knows a four-class task on 10x12 images, and images it was not trained on."""

    network: nn.Module
    pixels: Tensor  # (160, 3, 10, 12) uint8
    labels: Tensor

    @property
    def images(self) -> Tensor:
        return self.pixels / 255


@pytest.fixture(scope="session")
def toy() -> Toy:
    with seeded("audit toy"):
        templates = nn.functional.interpolate(torch.rand(4, 3, 3, 3), size=(10, 12))
        network = make_network()

        def batch(count: int) -> tuple[Tensor, Tensor]:
            labels = torch.randint(4, (count,))
            noise = 0.6 * torch.randn(count, 3, 10, 12)
            return (templates[labels] + noise).clamp(0, 1), labels

        optimizer = torch.optim.Adam(network.parameters(), 3e-3)
        for _ in range(120):
            images, labels = batch(64)
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images), labels).backward()
            optimizer.step()
        optimizer.zero_grad()
        images, labels = batch(160)
        labels[::20] = (labels[::20] + 1) % 4  # some labels are wrong, so some answers are
    return Toy(network.eval(), (images * 255).round().to(torch.uint8), labels)


@pytest.fixture(autouse=True)
def one_thread():
    """The thread count is part of a run's identity; subprocesses get one too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def settle(folder: Path, toy: Toy, patch: pytest.MonkeyPatch) -> None:
    """Put toy.safetensors, toy.npz and toy_factory.py into a folder and work there, offline."""
    weights = {name: value.contiguous() for name, value in toy.network.state_dict().items()}
    save_file(weights, folder / "toy.safetensors")
    images = toy.pixels.permute(0, 2, 3, 1).numpy()
    np.savez(folder / "toy.npz", images=images, labels=toy.labels.numpy())
    (folder / "toy_factory.py").write_text(FACTORY)
    patch.chdir(folder)
    patch.syspath_prepend(folder)
    patch.setenv("ROBUST0_CACHE", str(folder / "cache"))
    patch.setenv("ROBUST0_OFFLINE", "1")


@pytest.fixture
def place(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the toy's files, which is the working directory."""
    settle(tmp_path, toy, monkeypatch)
    return tmp_path


@pytest.fixture(scope="module")
def ground(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same for all tests of a module."""
    folder = tmp_path_factory.mktemp("ground")
    with pytest.MonkeyPatch.context() as patch:
        settle(folder, toy, patch)
        yield folder


@pytest.fixture
def make_job(toy: Toy, tmp_path: Path) -> Callable[..., AuditJob]:
    """An audit of the toy network, or of another module, in memory."""

    def build(
        *,
        network: nn.Module | None = None,
        images: Tensor | None = None,
        labels: Tensor | None = None,
        count: int = 32,
        budgets: tuple[int, ...] = (8,),
        attacks: tuple[str, ...] = ("saa",),
        mode: str = "battery",
        effort: str = "smoke",
        unit: str = "pixel",
        seed: int = 0,
        thorough: bool = False,
        rows: int = 16,
        **changes: object,
    ) -> AuditJob:
        network = toy.network if network is None else network
        images = toy.images[:count] if images is None else images
        labels = toy.labels[:count] if labels is None else labels
        audit = {"mode": mode, "effort": effort, "attacks": list(attacks), "seed": seed}
        extra = {"params", "tolerance", "max_passes"} & set(changes)
        spec = read_audit({**audit, **{key: changes.pop(key) for key in extra}})
        subject = given_subject(network, given_images(images, labels, CPU), CPU)
        known = {key: changes.pop(key) for key in list(changes) if hasattr(subject, key)}
        subject = replace(subject, arch=type(bare(network)).__name__, model="toy", **known)
        request = AuditRequest(
            subject=subject, audit=spec, unit=unit, budgets=budgets,
            recipe=str(changes.pop("recipe", "toy")),
            thorough=thorough, batch_size=rows, **changes,
        )  # fmt: skip
        return build_audit(request)

    return build
