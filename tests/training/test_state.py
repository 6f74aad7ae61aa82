"""What a method and an average remember: exact resumption, replays, the weights that are used."""

from dataclasses import fields, replace

import pytest
import torch
from safetensors.torch import load_file

from robust0.errors import RunError, TrainingError
from robust0.events import Saved, TrainStarted
from robust0.training import snapshot as snapshots
from robust0.training.averaging import EMA, SWA, WeightAverage
from robust0.training.methods.base import Method
from robust0.training.methods.free_at import FreeAT
from robust0.training.methods.inner import NoAttack
from robust0.training.methods.objectives import AdversarialObjective
from tests.training.conftest import make_job, make_network
from tests.training.test_loop import same, train, weights

VARIANTS = {
    "free-at": {},
    "ema": {"averaging": EMA(decay=0.9)},
    "swa": {"averaging": SWA(start=0.3, every=2, norm_images=40)},
}


def variant(folder, name):
    job = make_job(folder, **VARIANTS[name])
    if name == "free-at":
        plain = replace(
            job.method,
            inner=NoAttack(),
            objective=AdversarialObjective(),
            learns_from="adversarial",
        )
        job = replace(job, method=FreeAT(replays=2).build(plain), epochs=8)
    return job


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("epochs_before", [1, 3])
def test_resuming_is_exact(tmp_path, name, epochs_before):
    whole, cut = variant(tmp_path / "whole", name), variant(tmp_path / "cut", name)
    train(whole)
    step = f"{5 * epochs_before:09d}"
    train(cut, stop_after=lambda e: isinstance(e, Saved) and step in e.path)
    again = variant(tmp_path / "cut", name)
    train(again, resume=True)
    assert same(weights(whole), weights(again))
    first, second = whole.method.state_dict(), again.method.state_dict()
    assert first.keys() == second.keys()
    assert same(first, second)
    exported = [load_file(job.folder / "model.safetensors") for job in (whole, again)]
    assert same(*exported)


def test_free_at_replays_and_divides_the_epochs(tmp_path):
    job = variant(tmp_path / "run", "free-at")
    events = train(job)
    started = next(event for event in events if isinstance(event, TrainStarted))
    assert (started.epochs, events[-1].step) == (4, 20)
    state = snapshots.latest(job.folder, job.device)
    assert state.method["magnitude"].shape == (16, 3, 64)
    assert {"labels", "magnitude", "logits"} == set(state.method)


def test_free_at_stays_in_the_budget_and_carries_what_it_learned(tmp_path):
    job = variant(tmp_path / "run", "free-at")
    seen = []

    class Spy(type(job.network)):
        def forward(self, images):
            if self.training:
                seen.append(images.detach().clone())
            return super().forward(images)

    network = make_network()
    network.__class__ = Spy
    train(replace(job, network=network))
    assert not torch.equal(seen[0], seen[1]), "the second replay meets another perturbation"
    first, second = seen[0], seen[1]
    assert (first != second).any(dim=1).flatten(1).sum(dim=1).max() <= 2 * job.method.threat.budget


def test_a_method_that_miscounts_its_updates_is_refused(tmp_path):
    class Twice(Method):
        def train(self, batch, update):
            for _ in range(2):
                update(lambda micro: self.loss(batch, micro))

    job = make_job(tmp_path / "run")
    parts = {field.name: getattr(job.method, field.name) for field in fields(job.method)}
    job = replace(job, method=Twice(**parts))
    with pytest.raises(TrainingError, match="moves the weights 1 times per batch, and did so 2"):
        train(job)


def test_the_average_is_exported_and_the_network_trains_on(tmp_path):
    plain, averaged = make_job(tmp_path / "plain"), variant(tmp_path / "ema", "ema")
    train(plain)
    train(averaged)
    assert same(weights(plain), weights(averaged)), "an average does not disturb training"
    exported = load_file(averaged.folder / "model.safetensors")
    assert not same(exported, weights(averaged))
    found = snapshots.latest(averaged.folder, averaged.device)
    assert same({k: found.averaging[f"mean.{k}"] for k in exported}, exported)


def test_swa_is_the_mean_of_what_joined_with_statistics_of_its_own():
    network = make_network()
    images = torch.rand(64, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    average = WeightAverage(SWA(start=0.5, every=1), network, lambda count: iter(images.split(32)))
    kept = []
    for update in range(1, 5):
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(0.1 * update)
        average.note(update, 4)
        kept.append(network[0].weight.detach().clone())
    own = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with average.applied() as used:
        torch.testing.assert_close(used[0].weight.detach(), torch.stack(kept[1:]).mean(dim=0))
        means = torch.stack([used[0](part).mean(dim=(0, 2, 3)) for part in images.split(32)])
        torch.testing.assert_close(used[1].running_mean, means.mean(dim=0).detach())
        assert used.training
    assert same(own, network.state_dict())
    assert network[1].momentum == 0.1


def test_a_snapshot_of_the_old_form_is_refused_in_plain_words(tmp_path, monkeypatch):
    job = make_job(tmp_path / "run", epochs=1)
    monkeypatch.setattr(snapshots, "_SCHEMA", 1)
    train(job)
    monkeypatch.undo()
    with pytest.raises(RunError, match="written by another robust0"):
        train(make_job(tmp_path / "run", epochs=1), resume=True)
