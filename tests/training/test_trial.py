"""The rehearsal before a run: real steps, on copies."""

import copy

import pytest
import torch

from robust0.training import trial
from robust0.training.trial import rehearse


def test_a_rehearsal_leaves_network_and_method_as_they_were(job):
    network, labels = copy.deepcopy(job.network.state_dict()), job.method.state_dict()["labels"]
    before, mode = labels.clone(), job.network.training
    plan, after = rehearse(job, 1), job.network.state_dict()
    assert all(torch.equal(network[name], value) for name, value in after.items())
    assert torch.equal(labels, before)
    assert (job.network.training, list(job.folder.iterdir())) == (mode, [])
    assert (plan.epochs, plan.steps_per_epoch, plan.batch) == (4, 5, 16)
    assert plan.training_seconds > 0
    assert plan.watching_seconds > 0


def test_more_epochs_cost_more_and_more_processes_less(job, monkeypatch):
    monkeypatch.setattr("robust0.training.trial.try_steps", lambda trial: iter([1.9, 1.6]))
    plans = [rehearse(job, 1), rehearse(job, 2)]
    assert [plan.training_seconds for plan in plans] == pytest.approx([0.1 * 320, 0.1 * 256 / 2])


@pytest.mark.parametrize(("forward", "rows"), [(1e-4, 625), (1e-3, 62), (0.1, 16)])
def test_a_quick_network_is_tried_with_larger_steps(forward, rows):
    assert trial.trial_rows(forward) == rows


def test_a_trial_step_is_never_larger_than_a_real_one(job, monkeypatch):
    seen = []
    monkeypatch.setattr(trial, "trial_rows", lambda forward: 1000)
    monkeypatch.setattr(trial, "try_steps", lambda trial: [seen.append(trial.batch_size), 1.0][1:])
    assert rehearse(job, 1).training_seconds > 0
    assert seen == [job.batch_size]
