"""Real processes: two ranks equal two accumulation steps; SIGKILL, resume, restarts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from robust0.training import snapshot

ROOT = Path(__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
SETTINGS = [
    "--model", "preact_resnet18_w8", "--epochs", "3", "--device", "cpu",
    "--set", "training.probe.images=8", "--set", "training.probe.forwards=4",
    "--set", "training.probe.queries=4",
    "--set", "training.threat.pixels=6", "--set", "threat.pixels=2",
    "--set", "training.labels.start=0.3",
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Ninety-six 8x8 images whose class is their bright channel."""
    draw = np.random.default_rng(0)
    labels = np.arange(96) % 3
    images = draw.integers(0, 200, (96, 8, 8, 3), dtype=np.uint8)
    images[np.arange(96), :, :, labels] += 55
    path = tmp_path_factory.mktemp("data") / "toy.npz"
    np.savez(path, images=images, labels=labels)
    return f"npz:{path}"


ACCUMULATED = ["--batch-size", "16", "--set", "training.accumulate=2"]


def weights(folder):
    return load_file(folder / "model.safetensors")


def assert_same(one, other):
    one, other = weights(one), weights(other)
    assert all(np.array_equal(one[name], other[name]) for name in one)


def assert_close(one, other, rtol=1e-4, atol=1e-5):
    one, other = weights(one), weights(other)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=rtol, atol=atol, err_msg=name)


def wait_for(folder, step, *processes):
    """Until the run has written a snapshot of at least this step."""
    for _ in range(12000):
        found = [int(p.stem.split("-")[1]) for p in folder.glob("snapshot-*.safetensors")]
        if found and max(found) >= step:
            return
        assert all(process.poll() is None for process in processes), "it ended before"
        time.sleep(0.02)
    raise AssertionError("no snapshot appeared")


@pytest.fixture(scope="module")
def command(data):
    return ["harden", "--data", data, *SETTINGS]


@pytest.fixture(scope="module")
def reference(nursery, command, tmp_path_factory):
    """One process, two accumulation steps of sixteen."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    nursery.start(*command, *ACCUMULATED, "-o", str(folder)).finish()
    return folder


def test_two_ranks_equal_two_accumulation_steps(nursery, command, reference, tmp_path):
    folder = tmp_path / "two"
    for rank in nursery.start_two(*command, "--batch-size", "16", "-o", str(folder)):
        rank.finish()
    assert_close(reference, folder)
    device = "cpu"
    tables = [snapshot.latest(run, device).method["labels"].numpy() for run in (reference, folder)]
    np.testing.assert_allclose(*tables, rtol=1e-4, atol=1e-5)
    assert (tables[0].max(axis=1) < 1).sum() > 80, "soft labels have moved for trained images"


def test_a_killed_run_resumes_to_identical_weights(nursery, command, reference, tmp_path):
    folder = tmp_path / "killed"
    process = nursery.start(*command, *ACCUMULATED, "-o", str(folder))
    for step in (2, 4):
        wait_for(folder, step, process)
        assert process.kill()
        process = nursery.start("harden", "--resume", str(folder))
    process.finish()
    assert_same(reference, folder)
    assert not list(folder.glob(".*.tmp"))


def test_ctrl_c_saves_and_says_how_to_go_on(nursery, command, reference, tmp_path):
    folder = tmp_path / "stopped"
    process = nursery.start(*command, *ACCUMULATED, "-o", str(folder))
    wait_for(folder, 2, process)
    os.kill(process.pid, signal.SIGINT)
    code = process.wait()
    if code == 0:
        pytest.skip("the run was over before the signal came")
    assert code == 130, process.output()
    assert f"--resume {folder}" in process.output().replace("\n", " ")
    nursery.start("harden", "--resume", str(folder)).finish()
    assert_same(reference, folder)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_does_not_wait_for_one_that_died(nursery, command, reference, tmp_path, victim):
    """Nobody watches these ranks; a launcher that does starts them again, as torchrun would."""
    folder = tmp_path / "orphaned"
    arguments = [*command, "--batch-size", "16", "-o", str(folder)]
    ranks = nursery.start_two(*arguments)
    wait_for(folder, 2, *ranks)
    assert ranks[victim].kill()
    survivor = ranks[1 - victim]
    assert survivor.wait(30) == 3, survivor.output()
    if victim == 1:  # only the first rank talks
        assert "another process of this run has died" in survivor.output()
    for rank in nursery.start_two(*arguments, TORCHELASTIC_RESTART_COUNT="1"):
        rank.finish()
    assert_close(reference, folder)


@pytest.mark.slow
def test_torchrun_restarts_a_killed_worker_by_itself(command, reference, tmp_path):
    folder = tmp_path / "restarted"
    process = subprocess.Popen(
        [*TORCHRUN, "--max-restarts=2", "-m", "robust0", *command, "--batch-size", "16",
         "-o", str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    wait_for(folder, 2, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    assert_close(reference, folder)


FREE = ["--method", "free-at", "--set", "training.step.replays=3", "--epochs", "9"]
AVERAGED = "training.averaging={kind: %s}"
VARIANTS = {
    "free-at": FREE,
    "ema": ["--set", AVERAGED % "ema, decay: 0.9"],
    "swa": ["--set", AVERAGED % "swa, start: 0.3, every: 1"],
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_killed_run_with_a_memory_of_its_own_resumes_and_processes_agree(
    nursery, data, tmp_path, name
):
    common = SETTINGS[:-2] if name == "free-at" else SETTINGS  # it has hard labels
    arguments = ["harden", "--data", data, *common, *VARIANTS[name]]
    one, killed, two = (tmp_path / folder for folder in ("one", "killed", "two"))
    nursery.start(*arguments, *ACCUMULATED, "-o", str(one)).finish()
    process = nursery.start(*arguments, *ACCUMULATED, "-o", str(killed))
    wait_for(killed, 4, process)
    assert process.kill()
    nursery.start("harden", "--resume", str(killed)).finish()
    assert_same(one, killed)
    for rank in nursery.start_two(*arguments, "--batch-size", "16", "-o", str(two)):
        rank.finish()
    assert_close(one, two, rtol=1e-3, atol=1e-4)
