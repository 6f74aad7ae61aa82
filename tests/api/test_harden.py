"""Hardening from Python: the caller's module is trained, in place."""

import pytest
import torch
from torch import nn

import robust0
from robust0.errors import DataError, ModelError, RunError
from robust0.events import EpochDone
from robust0.rng import seeded

FEW = {"eps": 2, "epochs": 2, "batch_size": 16, "progress": False,
       "settings": {"training.probe.images": 4, "training.probe.forwards": 5}}  # fmt: skip
IGNORED = pytest.mark.filterwarnings("ignore::robust0.EvaluationWarning")


@pytest.fixture
def given():
    with seeded("api harden"):
        network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3))
        images, labels = torch.rand(64, 3, 8, 8), torch.arange(64) % 3
    return network, images, labels


@IGNORED
def test_a_module_is_trained_in_place_and_kept_where_asked(given, tmp_path):
    network, images, labels = given
    before = [weight.clone() for weight in network.parameters()]
    events = []
    result = robust0.harden(
        network, images, labels, folder=tmp_path / "run", **FEW | {"progress": events.append}
    )
    assert result.module is network
    assert network.training
    assert not any(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
    assert [line["epoch"] for line in result.history] == [0, 1, 2]
    assert any(isinstance(event, EpochDone) for event in events)
    assert "2 epochs" in repr(result)
    again = robust0.load(result.folder, factory=lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3)))  # fmt: skip
    with torch.no_grad():
        assert torch.equal(again(images), network.eval()(images))
    with pytest.raises(RunError, match="already holds a run"):
        robust0.harden(network, images, labels, folder=tmp_path / "run", **FEW)


@IGNORED
def test_features_and_datasets_and_the_same_seed(given):
    network, images, labels = given
    start = {key: value.clone() for key, value in network.state_dict().items()}
    data = torch.utils.data.TensorDataset(images, labels)
    ends = []
    for _ in range(2):
        network.load_state_dict(start)
        robust0.harden(network, data, unit="feature", method="sparse-at", **FEW | {"epochs": 1})
        ends.append([value.clone() for value in network.state_dict().values()])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_what_cannot_be_trained_is_refused(given):
    network, images, labels = given
    with pytest.raises(ModelError, match="no weights"):
        robust0.harden(nn.Flatten(), images, labels, **FEW)
    with pytest.raises(ModelError, match="got a int"):
        robust0.harden(3, images, labels, **FEW)
    with pytest.raises(DataError, match="no labels"):
        robust0.harden(network, images, **FEW)
