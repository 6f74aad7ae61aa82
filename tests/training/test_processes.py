"""Real processes: two ranks equal two accumulation steps; SIGKILL, resume; torchrun restarts."""

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

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
SETTINGS = [
    "--model", "preact_resnet18_w8", "--epochs", "3", "--device", "cpu",
    "--set", "training.probe.images=8", "--set", "training.probe.forwards=4",
    "--set", "training.probe.queries=4",
    "--set", "training.threat.pixels=12", "--set", "threat.pixels=4",
    "--set", "training.labels.start=0.3",
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Ninety-six 16x16 images whose class is their bright channel."""
    draw = np.random.default_rng(0)
    labels = np.arange(96) % 3
    images = draw.integers(0, 200, (96, 16, 16, 3), dtype=np.uint8)
    images[np.arange(96), :, :, labels] += 55
    path = tmp_path_factory.mktemp("data") / "toy.npz"
    np.savez(path, images=images, labels=labels)
    return f"npz:{path}"


def environment():
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}


def harden(*arguments, launcher=(sys.executable,), **options):
    command = [*launcher, "-m", "robust0", "harden", *arguments]
    return subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        **options,
    )  # fmt: skip


def finish(process):
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    return out


def weights(folder):
    return load_file(folder / "model.safetensors")


def wait_for(folder, step, process):
    """Until the run has written a snapshot of at least this step."""
    for _ in range(4800):
        found = [int(p.stem.split("-")[1]) for p in folder.glob("snapshot-*.safetensors")]
        if found and max(found) >= step:
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    raise AssertionError("no snapshot appeared")


@pytest.fixture(scope="module")
def reference(data, tmp_path_factory):
    """One process, two accumulation steps of sixteen."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    accumulated = ["--batch-size", "16", "--set", "training.accumulate=2"]
    finish(harden("--data", data, *SETTINGS, *accumulated, "-o", str(folder)))
    return folder


def test_two_ranks_equal_two_accumulation_steps(data, reference, tmp_path):
    folder = tmp_path / "two"
    finish(
        harden(
            "--data", data, *SETTINGS, "--batch-size", "16", "-o", str(folder), launcher=TORCHRUN
        )
    )
    one, two = weights(reference), weights(folder)
    for name in one:
        np.testing.assert_allclose(one[name], two[name], rtol=1e-4, atol=1e-5, err_msg=name)
    device = "cpu"
    tables = [snapshot.latest(run, device).method["labels"].numpy() for run in (reference, folder)]
    np.testing.assert_allclose(*tables, rtol=1e-4, atol=1e-5)
    assert (tables[0].max(axis=1) < 1).sum() > 80, "soft labels have moved for trained images"


def test_a_killed_run_resumes_to_identical_weights(data, reference, tmp_path):
    folder = tmp_path / "killed"
    arguments = ["--data", data, *SETTINGS, "--batch-size", "16", "--set", "training.accumulate=2"]
    process = harden(*arguments, "-o", str(folder))
    for step in (2, 4):
        wait_for(folder, step, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        process = harden("--resume", str(folder))
    finish(process)
    one, again = weights(reference), weights(folder)
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not list(folder.glob(".*.tmp"))


def test_ctrl_c_saves_and_says_how_to_go_on(data, reference, tmp_path):
    folder = tmp_path / "stopped"
    arguments = ["--data", data, *SETTINGS, "--batch-size", "16", "--set", "training.accumulate=2"]
    process = harden(*arguments, "-o", str(folder))
    wait_for(folder, 2, process)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    if process.returncode == 0:
        pytest.skip("the run was over before the signal came")
    assert process.returncode == 130, out
    assert f"--resume {folder}" in out.replace("\n", " ")
    finish(harden("--resume", str(folder)))
    one, again = weights(reference), weights(folder)
    assert all(np.array_equal(one[name], again[name]) for name in one)


def test_torchrun_restarts_a_killed_worker_by_itself(data, reference, tmp_path):
    folder = tmp_path / "restarted"
    launcher = [*TORCHRUN, "--max-restarts=2"]
    process = harden(
        "--data", data, *SETTINGS, "--batch-size", "16", "-o", str(folder), launcher=launcher
    )
    wait_for(folder, 2, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    finish(process)
    one, again = weights(reference), weights(folder)
    for name in one:
        np.testing.assert_allclose(one[name], again[name], rtol=1e-4, atol=1e-5, err_msg=name)


FREE = ["--method", "free-at", "--set", "training.step.replays=3", "--epochs", "9"]
AVERAGED = "training.averaging={kind: %s}"
VARIANTS = {
    "free-at": FREE,
    "ema": ["--set", AVERAGED % "ema, decay: 0.9"],
    "swa": ["--set", AVERAGED % "swa, start: 0.3, every: 1"],
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_killed_run_with_a_memory_of_its_own_resumes_and_processes_agree(data, tmp_path, name):
    common = SETTINGS[:-2] if name == "free-at" else SETTINGS  # it has hard labels
    arguments = ["--data", data, *common, *VARIANTS[name], "--batch-size", "16"]
    accumulated = [*arguments, "--set", "training.accumulate=2"]
    finish(harden(*accumulated, "-o", str(tmp_path / "one")))
    killed = tmp_path / "killed"
    process = harden(*accumulated, "-o", str(killed))
    wait_for(killed, 4, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finish(harden("--resume", str(killed)))
    one, again = weights(tmp_path / "one"), weights(killed)
    assert all(np.array_equal(one[key], again[key]) for key in one)
    finish(harden(*arguments, "-o", str(tmp_path / "two"), launcher=TORCHRUN))
    two = weights(tmp_path / "two")
    for key in one:
        np.testing.assert_allclose(one[key], two[key], rtol=1e-3, atol=1e-4, err_msg=key)
