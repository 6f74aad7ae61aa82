"""The loop: exact resumption, accumulation, guards, the overfitting watch, what it writes."""

import json
import shutil
import signal
import threading
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from robust0.attacks.sparse_rs import SparseRS
from robust0.distributed import World
from robust0.errors import RunError, TrainingError
from robust0.events import (
    EpochDone,
    OverfittingSeen,
    Saved,
    StepDone,
    TrainFinished,
    TrainStarted,
    Watching,
)
from robust0.runs.folder import read_lines
from robust0.threats import Threat
from robust0.training import loop, watch
from robust0.training import snapshot as snapshots
from robust0.training.guards import HealthCheck
from robust0.training.meter import StepMeter
from robust0.training.methods.base import StepResult
from robust0.training.methods.inner import NoAttack
from robust0.training.methods.labels import FixedTargets
from robust0.training.methods.objectives import CleanObjective
from robust0.training.optimizers import SGD
from robust0.training.vigil import Vigil
from tests.training.conftest import make_data, make_job, make_network

ALONE = World()


def weights(job):
    return {name: value.clone() for name, value in job.network.state_dict().items()}


def train(job, *, resume=False, stop_after=None):
    events = []
    run = loop.run_training(job, ALONE, resume=resume)
    for event in run:
        events.append(event)
        if stop_after and stop_after(event):
            run.close()
            break
    return events


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_learns_and_tells_what_it_did(job):
    events = train(job)
    assert isinstance(events[0], TrainStarted)
    assert isinstance(events[-1], TrainFinished)
    epochs = [event for event in events if isinstance(event, EpochDone)]
    assert [event.epoch for event in epochs] == [1, 2, 3, 4]
    assert epochs[-1].clean > 0.8
    assert (job.folder / "model.safetensors").exists()
    assert (job.folder / "best.safetensors").exists()
    assert len(list(job.folder.glob("snapshot-*"))) == 2
    lines = read_lines(job.folder / "metrics.jsonl")
    assert [line["epoch"] for line in lines if line["event"] == "epoch"] == [1, 2, 3, 4]
    steps = [event for event in events if isinstance(event, StepDone)]
    assert set(steps[0].parts) == {"clean", "divergence"}
    assert sum(steps[0].parts.values()) == pytest.approx(steps[0].loss, rel=1e-5)


def test_every_epoch_is_kept_where_asked(job):
    train(replace(job, keep_epochs=True))
    kept = sorted(path.name for path in job.folder.glob("epoch-*"))
    assert kept == [f"epoch-{epoch:04}.safetensors" for epoch in (1, 2, 3, 4)]
    last = (job.folder / "model.safetensors").read_bytes()
    assert (job.folder / kept[-1]).read_bytes() == last


def test_the_same_seed_gives_the_same_weights_and_another_does_not(tmp_path):
    jobs = [make_job(tmp_path / str(n), seed=seed) for n, seed in enumerate((0, 0, 1))]
    for job in jobs:
        train(job)
    assert same(weights(jobs[0]), weights(jobs[1]))
    assert not same(weights(jobs[0]), weights(jobs[2]))


@pytest.mark.parametrize("epochs_before", [1, 2, 3])
def test_resuming_gives_the_weights_of_an_uninterrupted_run(tmp_path, epochs_before):
    whole = make_job(tmp_path / "whole")
    train(whole)
    first = make_job(tmp_path / "cut")

    def reached(event):
        return (
            isinstance(event, Saved) and event.kind == "snapshot" and seen(event) >= epochs_before
        )

    def seen(event):
        return int(event.path.split("-")[-1].split(".")[0]) // 5

    train(first, stop_after=reached)
    second = make_job(tmp_path / "cut")
    events = train(second, resume=True)
    assert events[0].step == 5 * epochs_before
    assert same(weights(whole), weights(second))
    assert torch.equal(whole.method.state_dict()["labels"], second.method.state_dict()["labels"])

    def curve(job):
        return [
            {k: v for k, v in line.items() if k not in ("images_per_second", "memory_bytes")}
            for line in read_lines(job.folder / "metrics.jsonl")
        ]

    assert curve(whole) == curve(second)


def test_a_damaged_newest_snapshot_falls_back_to_the_one_before(tmp_path):
    whole = make_job(tmp_path / "whole")
    train(whole)
    cut = make_job(tmp_path / "cut")
    train(cut, stop_after=lambda e: isinstance(e, EpochDone) and e.epoch == 3)
    newest = sorted(cut.folder.glob("snapshot-*"))[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    again = make_job(tmp_path / "cut")
    assert train(again, resume=True)[0].step == 5
    assert same(weights(whole), weights(again))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"identity": {"recipe hash": "other"}}, "recipe hash"),
        ({"batch_size": 8}, "images per step"),
        ({"batch_size": 8, "accumulate": 2}, "micro-batches"),
    ],
)
def test_a_run_with_other_settings_is_refused_by_name(tmp_path, change, named):
    train(make_job(tmp_path / "run"), stop_after=lambda e: isinstance(e, Saved))
    train(
        make_job(tmp_path / "run"),
        stop_after=lambda e: isinstance(e, Saved) and e.kind == "snapshot",
    )
    with pytest.raises(RunError, match=named):
        train(make_job(tmp_path / "run", **change), resume=True)


def test_a_signal_saves_and_the_run_goes_on_exactly(tmp_path):
    whole = make_job(tmp_path / "whole")
    train(whole)
    cut = make_job(tmp_path / "cut", snapshot_minutes=1e9)
    assert threading.current_thread() is threading.main_thread()
    events = []
    for event in loop.run_training(cut, ALONE, resume=False):
        events.append(event)
        if isinstance(event, EpochDone) and event.epoch == 2:
            signal.raise_signal(signal.SIGTERM)
    assert events[-1].interrupted == signal.SIGTERM
    assert not (cut.folder / "model.safetensors").exists()
    again = make_job(tmp_path / "cut")
    train(again, resume=True)
    assert same(weights(whole), weights(again))


def test_fewer_images_than_a_batch_train_with_a_smaller_one(tmp_path):
    job = make_job(tmp_path / "run", batch_size=500)
    started = train(job)[0]
    assert (started.batch, started.steps_per_epoch) == (80, 1)


def test_every_image_of_an_epoch_is_used_once(tmp_path):
    seen = []

    class Spy(FixedTargets):
        def observe(self, rows, logits, progress):
            seen.append(rows)
            return super().observe(rows, logits, progress)

    job = make_job(tmp_path / "run", epochs=2)
    train(replace(job, method=replace(job.method, targets=Spy(job.data.labels, 3))))
    epochs = torch.cat(seen).view(2, 80)
    assert epochs.sort(dim=1).values.tolist() == [list(range(80))] * 2
    assert not torch.equal(epochs[0], epochs[1])


def test_a_loss_that_is_not_a_number_stops_the_run_and_keeps_the_snapshot(tmp_path):
    class Poisoned(FixedTargets):
        def observe(self, rows, logits, progress):
            target, weight = super().observe(rows, logits, progress)
            return target, weight * (float("nan") if progress > 0.4 else 1.0)

    job = make_job(tmp_path / "run")
    job = replace(job, method=replace(job.method, targets=Poisoned(job.data.labels, 3)))
    with pytest.raises(TrainingError, match="loss became nan"):
        train(job)
    kept = sorted(job.folder.glob("snapshot-*"))
    assert kept[-1].name == "snapshot-000000010.safetensors"


def test_an_exploding_gradient_stops_the_run(tmp_path):
    class Bomb(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.calls = make_network(), 0

        def forward(self, images):
            self.calls += self.training
            return self.inner(images) * (1e8 if self.calls > 60 else 1.0)

    job = make_job(tmp_path / "run", network=Bomb(), epochs=9)
    with pytest.raises(TrainingError, match="gradient norm exploded"):
        train(job)


@pytest.mark.parametrize(
    "problem",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't "
                     "allocate memory: you tried to allocate 9000 bytes. Error code 12"),
    ],
)  # fmt: skip
def test_running_out_of_memory_names_the_batch_size_that_fits(problem, tmp_path):
    class Hungry(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = make_network()

        def forward(self, images):
            if len(images) > 5:
                raise problem
            return self.inner(images)

    with pytest.raises(TrainingError, match="out of memory at a batch size of 16; 4 fits") as told:
        train(make_job(tmp_path / "run", network=Hungry()))
    assert "--batch-size 4 --set training.accumulate=4" in told.value.hint


def test_a_run_whose_folder_is_gone_ends_in_two_lines(tmp_path):
    job = make_job(tmp_path / "run")
    events = loop.run_training(job, ALONE, resume=False)
    next(event for event in events if isinstance(event, Saved))
    shutil.rmtree(job.folder)
    with pytest.raises(RunError, match="the run directory was removed") as told:
        list(events)
    assert told.value.exit_code == 3


def test_a_full_disk_keeps_the_previous_snapshot(tmp_path, monkeypatch):
    job = make_job(tmp_path / "run")
    real = loop.snapshots.save_file

    def full(tensors, path, metadata):
        if json.loads(metadata["robust0-snapshot"])["step"] > 5:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        real(tensors, path, metadata)

    monkeypatch.setattr(loop.snapshots, "save_file", full)
    with pytest.raises(RunError, match="No space left"):
        train(job)
    assert [path.name for path in job.folder.glob("*snapshot*")] == [
        "snapshot-000000005.safetensors"
    ]


def test_accumulation_merges_the_statistics_of_its_micro_batches(tmp_path):
    """Two micro-batches start from equal statistics; their updates are averaged."""
    job = make_job(tmp_path / "run", batch_size=40, accumulate=2, epochs=1)
    job = replace(
        job,
        method=replace(
            job.method,
            inner=NoAttack(),
            objective=CleanObjective(),
            targets=FixedTargets(job.data.labels, 3),
        ),
        watch=replace(job.watch, images=0),
    )
    inputs = []
    job.network[0].register_forward_pre_hook(
        lambda _, args: inputs.append(args[0].detach().clone())
    )
    conv = make_network()[0]
    train(job)
    first, second = (conv(images).mean(dim=(0, 2, 3)) * 0.1 for images in inputs)
    torch.testing.assert_close(job.network[1].running_mean, ((first + second) / 2).detach())


def test_the_watch_warns_when_the_training_attack_is_no_attack(tmp_path):
    """A model that is better attacked than clean raises the alarm, is marked, and can stop."""

    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = make_network()

        def forward(self, images):
            # Pure corner colours give the class away: what a collapsed network does.
            hint = (images == 1).sum(dim=(2, 3)).float()
            return self.inner(images) * 0 + 5 * images.mean(dim=(2, 3)) + 50 * hint

    data = make_data()
    job = make_job(tmp_path / "run", network=Backwards(), data=data)

    class Telling:
        def __call__(self, model, lesson):
            adversarial = lesson.images.clone()
            adversarial[torch.arange(len(adversarial)), lesson.labels, 0, 0] = 1.0
            adversarial[torch.arange(len(adversarial)), (lesson.labels + 1) % 3, 0, 0] = 0.0
            return adversarial

    grey = torch.arange(80, 96)  # the reserved images lose their class
    data._pixels[grey] = data._pixels[grey].float().mean(dim=1, keepdim=True).to(torch.uint8)
    job = replace(
        job, method=replace(job.method, inner=Telling()), watch=replace(job.watch, stop=True)
    )
    events = train(job)
    alarms = [event for event in events if isinstance(event, OverfittingSeen)]
    assert len(alarms) == 1
    assert "exceeds clean accuracy" in alarms[0].reason
    assert events[-1].step == 5
    assert "exceeds" in events[-1].overfitting
    lines = read_lines(job.folder / "metrics.jsonl")
    assert [line["epoch"] for line in lines if line["event"] == "overfitting"] == [1]
    assert not (job.folder / "best.safetensors").exists()


def test_the_best_checkpoint_is_from_before_a_collapse_whatever_the_probe_says_later(tmp_path):
    class Collapsing(nn.Module):
        """Any corner colour fools it at first; from step 11 on one pixel gives the class away."""

        def __init__(self):
            super().__init__()
            self.inner = make_network()
            self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

        def forward(self, images):
            self.updates += self.training
            logits = 0 * self.inner(images) + 5 * images.mean(dim=(2, 3))
            if self.updates <= 20:  # two forwards per step
                return logits - 50 * (images == 0).sum(dim=(2, 3))
            sure = torch.tensor([1.0, 0.0, 0.0])  # of the grey ones
            return logits + sure + 50 * (images[:, :, 0, 0] == 1)

    class Telling:
        """No attack at first, then one that paints the pixel that gives the class away."""

        def __call__(self, model, lesson):
            if model.updates <= 20:
                return lesson.images
            told = lesson.images.clone()
            told[torch.arange(len(told)), lesson.labels, 0, 0] = 1.0
            return told

    data = make_data()
    grey = torch.arange(80, 93)  # most of the reserved images lose their class
    data._pixels[grey] = data._pixels[grey].float().mean(dim=1, keepdim=True).to(torch.uint8)
    job = make_job(tmp_path / "run", network=Collapsing(), data=data)
    job = replace(job, method=replace(job.method, inner=Telling()))
    weak = replace(job.watch, threat=Threat.of(1), attacks=(("sparse-rs", SparseRS(queries=1)),))
    events = train(replace(job, watch=weak))
    epochs = [event for event in events if isinstance(event, EpochDone)]
    (alarmed,) = [event.epoch for event in events if isinstance(event, OverfittingSeen)]
    assert alarmed == 3
    assert [event.best for event in epochs] == [True, False, False, False]
    assert epochs[-1].probe > epochs[0].probe
    best = load_file(job.folder / "best.safetensors")
    assert best["updates"] == 10


def test_fine_tuning_is_read_before_the_first_step_and_the_start_can_be_the_best(tmp_path):
    job = make_job(tmp_path / "run", fine_tunes=True, epochs=1, optim=SGD(lr=10.0))
    train(make_job(tmp_path / "first", network=job.network))
    learned = weights(job)
    events = train(job)
    first, last = [event for event in events if isinstance(event, EpochDone)]
    assert (first.epoch, first.step, first.best) == (0, 0, True)
    assert not last.best
    assert same(load_file(job.folder / "best.safetensors"), learned)
    change = events[-1].fine_tuned
    assert (change.clean_before, change.clean) == (first.clean, last.clean)
    assert (change.probe_before, change.probe) == (first.probe, last.probe)
    assert (change.images, change.best_epoch) == (16, 0)
    lines = read_lines(job.folder / "metrics.jsonl")
    assert [line["epoch"] for line in lines if line["event"] == "epoch"] == [0, 1]


def test_fine_tuning_that_was_killed_before_a_snapshot_begins_again(tmp_path):
    job = make_job(tmp_path / "run", fine_tunes=True, epochs=1)
    train(job, stop_after=lambda event: isinstance(event, Saved))
    train(make_job(tmp_path / "run", fine_tunes=True, epochs=1), resume=True)
    lines = read_lines(job.folder / "metrics.jsonl")
    assert [line["epoch"] for line in lines if line["event"] == "epoch"] == [0, 1]


def test_a_vulnerable_start_is_no_collapse_until_the_probe_has_stood_up(tmp_path):
    job = make_job(tmp_path / "run")
    vigil = Vigil(replace(job, watch=replace(job.watch, collapse=0.1)), ALONE)
    probes, seen = iter([0.0, 0.05, 0.6, 0.05]), []

    def read(*_):
        yield Watching("a", 0, 16)
        return watch.Reading(16, 1.0, 0.9, next(probes))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "read", read)
        for epoch in range(4):
            seen += [
                e for e in vigil.look(job.network, epoch, epoch) if not isinstance(e, Watching)
            ]
    assert [event.best for event in seen if isinstance(event, EpochDone)] == [
        True,
        True,
        True,
        False,
    ]
    assert [event.epoch for event in seen if isinstance(event, OverfittingSeen)] == [3]


def test_an_interrupt_during_a_check_is_answered_at_once(tmp_path):
    seen = []
    for event in loop.run_training(make_job(tmp_path / "run"), ALONE, resume=False):
        if isinstance(event, Watching):
            seen.append(event.stopping)
            if len(seen) == 1:
                signal.raise_signal(signal.SIGTERM)
    assert seen[0] is False
    assert seen[1:]
    assert all(seen[1:])
    assert event.interrupted == signal.SIGTERM


@pytest.mark.parametrize(
    ("attack", "proved", "best"),
    [(0.5, False, [True, False]), (None, True, [True, False]), (None, False, [True, True])],
)
def test_the_best_of_a_run_without_an_attack_is_the_most_accurate(tmp_path, attack, proved, best):
    """What stands by chance is no merit of standard training."""
    job = make_job(tmp_path / "run")
    vigil = Vigil(job, ALONE)
    readings = iter([(0.5, 0.05), (0.8, 0.03)])

    def read(*_):
        yield Watching("a", 0, 16)
        clean, probe = next(readings)
        return watch.Reading(16, clean, attack, probe, proved=proved)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "read", read)
        seen = [event for epoch in (1, 2) for event in vigil.look(job.network, epoch, epoch)]
    assert [event.best for event in seen if isinstance(event, EpochDone)] == best
    assert "reserved_proved" not in vigil.metrics()


def test_a_resumed_run_still_shows_its_alarm(tmp_path):
    job = make_job(tmp_path / "run", epochs=1)
    train(job)
    found = snapshots.latest(job.folder, job.device)
    memory = found.memory | {"overfitting": (1, "probe accuracy collapsed")}
    snapshots.save(job.folder, replace(found, memory=memory))
    events = train(job, resume=True)
    alarms = [event for event in events if isinstance(event, OverfittingSeen)]
    assert alarms == [OverfittingSeen(1, "probe accuracy collapsed")]
    assert events[-1].overfitting == "probe accuracy collapsed"


def test_steps_that_a_loss_scaler_skips_do_not_look_like_an_explosion():
    meter, check = StepMeter(torch.device("cpu")), HealthCheck()
    result = StepResult(torch.tensor(1.0), {}, None, None)
    for number in range(10):
        for norm in (2.0, float("inf") if number == 7 else 4.0):
            meter.note(result, 8)
            meter.note_norm(torch.tensor(norm), may_skip=True)
        report = meter.report(number, 0, 0.1, ALONE)
        check.look(report)
        assert report.gradient_norm == (2.0 if number == 7 else 3.0)
    meter.note(result, 8)
    meter.note_norm(torch.tensor(float("nan")), may_skip=True)  # nothing but skipped steps
    with pytest.raises(TrainingError, match="exploded to nan"):
        check.look(meter.report(10, 0, 0.1, ALONE))
    meter.note(result, 8)
    meter.note_norm(torch.tensor(float("inf")))  # without a scaler the step was taken
    with pytest.raises(TrainingError, match="exploded to inf"):
        check.look(meter.report(11, 0, 0.1, ALONE))
