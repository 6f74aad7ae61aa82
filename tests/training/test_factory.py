"""Training a network of the user's own, from ``--factory``."""

import numpy as np
import pytest

from robust0.cli.app import run
from robust0.models.checkpoint import read_metadata
from robust0.models.factory import from_factory

MODULE = """
from torch import nn

def tiny():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
"""


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    (tmp_path / "my_networks.py").write_text(MODULE)
    labels = np.arange(60) % 3
    images = np.random.default_rng(0).integers(0, 200, (60, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "toy.npz", images=images, labels=labels)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SETTINGS = [
    "--data", "npz:toy.npz", "--epochs", "1", "--device", "cpu",
    "--set", "training.threat.pixels=6", "--set", "threat.pixels=2",
    "--set", "training.probe.images=4", "--set", "training.probe.forwards=8",
]  # fmt: skip


def test_a_users_network_trains_is_described_and_continues(workplace, capsys):
    assert run(["harden", "--factory", "my_networks:tiny", *SETTINGS, "-o", "first"]) == 0
    metadata = read_metadata("first/model.safetensors")
    assert (metadata.factory, metadata.arch, metadata.classes) == ("my_networks:tiny", None, 3)
    made = from_factory("my_networks:tiny", "first/model.safetensors")
    assert made.metadata == metadata
    again = ["harden", "--factory", "my_networks:tiny", "--from", "first/model.safetensors"]
    assert run([*again, *SETTINGS, "-o", "second"]) == 0
    assert "starts from sha256" in capsys.readouterr().err
    assert run(["harden", "--from", "first/model.safetensors", *SETTINGS, "-o", "third"]) == 2
    assert "--factory my_networks:tiny" in capsys.readouterr().err


def test_a_factory_and_a_model_name_exclude_each_other(workplace, capsys):
    assert run(["harden", "--factory", "my_networks:tiny", "--model", "resnet18", *SETTINGS]) == 2
    assert "leave out one of them" in capsys.readouterr().err
