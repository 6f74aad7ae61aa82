"""A small real training job: 96 random images of 8x8, a network with batch norm and dropout."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from robust0.attacks.sparse_rs import SparseRS
from robust0.data.augment import Shift
from robust0.data.imageset import DataOrigin, TensorSet
from robust0.rng import seeded
from robust0.threats import Threat
from robust0.training.averaging import NoAveraging
from robust0.training.job import TrainJob, Watch
from robust0.training.methods.base import Method
from robust0.training.methods.inner import SparsePGDInner
from robust0.training.methods.labels import SelfAdaptiveLabels
from robust0.training.methods.noise import SparseNoise
from robust0.training.methods.objectives import TradesObjective
from robust0.training.optimizers import SGD
from robust0.training.schedule import OneCycle

CLASSES = ("a", "b", "c")


def make_network() -> nn.Module:
    with seeded("test network"):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Softplus(), nn.Dropout(0.1),
            nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.Softplus(),
            nn.Flatten(), nn.Linear(128, 3),
        )  # fmt: skip


def make_data(count: int = 96) -> TensorSet:
    generator = torch.Generator().manual_seed(5)
    labels = torch.arange(count) % 3
    pixels = torch.randint(0, 200, (count, 3, 8, 8), dtype=torch.uint8, generator=generator)
    pixels[torch.arange(count), labels] += 55  # the class is the bright channel
    return TensorSet(DataOrigin("toy", "train", CLASSES, "memory"), pixels, labels)


def export(path: Path, network: nn.Module, metrics: dict) -> None:
    save_file({k: v.contiguous() for k, v in network.state_dict().items()}, path)


def make_job(folder: Path, **changes) -> TrainJob:
    data, threat = make_data(), Threat.of(6)
    rows = torch.arange(80)
    job = TrainJob(
        title="toy",
        folder=folder,
        network=make_network(),
        fine_tunes=False,
        data=data,
        rows=rows,
        reserved=torch.arange(80, 96),
        method=Method(
            noise=SparseNoise(),
            targets=SelfAdaptiveLabels().build(data.labels, 3),
            learns_from="noisy",
            inner=SparsePGDInner(),
            objective=TradesObjective(),
            threat=threat,
        ),
        averaging=NoAveraging(),
        optim=SGD(),
        schedule=OneCycle(),
        watch=Watch((("sparse-rs", SparseRS(queries=10)),), Threat.of(2), 16, 1, 0.0, stop=False),
        epochs=4,
        batch_size=16,
        accumulate=1,
        augment=Shift(pad=1),
        workers=0,
        precision="fp32",
        channels_last=True,
        compile=False,
        clip_norm=None,
        snapshot_minutes=1e9,
        seed=0,
        device=torch.device("cpu"),
        identity={"recipe hash": "abc"},
        export=export,
        notes=(),
    )
    folder.mkdir(parents=True, exist_ok=True)
    return replace(job, **changes)


@pytest.fixture
def job(tmp_path):
    return make_job(tmp_path / "run")
