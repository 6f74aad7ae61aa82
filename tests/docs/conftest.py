"""A folder with what the commands of README and docs name."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from robust0.resources import shipped

FACTORY = """
from torch import nn


def make():
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(3 * 7 * 7, 4))
"""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with what the README's commands name."""
    folder = tmp_path_factory.mktemp("readme")
    weights = shipped("model_zoo") / "cifar10-w8-e4-fast-ls-l0.safetensors"
    shutil.copy(weights, folder / "model.safetensors")
    package = folder / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "nets.py").write_text(FACTORY)
    draws = np.random.default_rng(0)
    np.savez(
        folder / "my.npz",
        images=draws.integers(0, 256, (64, 28, 28, 3), dtype=np.uint8),
        labels=np.arange(64) % 4,
    )
    save_file(
        {"2.weight": torch.randn(4, 147) / 12, "2.bias": torch.zeros(4)},
        folder / "weights.safetensors",
    )
    for label in range(10):
        place = folder / "photos" / "val" / f"class{label}"
        place.mkdir(parents=True)
        picture = draws.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(picture).save(place / "one.png")
    return folder
