"""Real processes: killed at random moments and resumed, several at once, two in one directory."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from robust0.cli.app import run
from robust0.runs.folder import owned

RESUME = ("audit", "--factory", "toy_factory:make", "--resume")
AUDIT = (
    "audit", "toy.safetensors", "--factory", "toy_factory:make", "--data", "npz:toy.npz",
    "--eps", "8,5", "--attacks", "saa", "--images", "48", "--batch-size", "16",
    "--set", "audit.params.sparse-rs.queries=200", "--set", "audit.params.sparse-pgd-p.steps=30",
    "--set", "audit.params.sparse-pgd-u.steps=30", "--output-format", "json",
)  # fmt: skip
ROOT = Path(__file__).parents[2]
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def environment():
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, *TWO, "-m", "robust0", *arguments], env=environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def results(folder):
    return json.dumps(json.loads((folder / "report.json").read_text())["results"], sort_keys=True)


@pytest.fixture(scope="module")
def whole(ground):
    """The results of an undisturbed run, in this process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    assert run([*AUDIT, "-o", "whole"]) == 0
    torch.set_num_threads(before)
    return results(ground / "whole")


def wait_for(running, condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition() and running():
        assert time.monotonic() < end, "the audit did not get that far"
        time.sleep(0.005)


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*verdicts*.jsonl"))


def kill_at_random(nursery, folder, draws):
    """Start or resume, let it write for a while, and kill it; whether it was alive."""
    resumable = (folder / "run.json").exists()
    arguments = [*RESUME, str(folder)] if resumable else [*AUDIT, "-o", str(folder)]
    before = size(folder)
    audit = nursery.start(*arguments)
    # Every process gets further than the one before, so that the end is reached.
    wait_for(lambda: audit.poll() is None, lambda: size(folder) > before)
    time.sleep(draws.uniform(0, 0.6))
    return audit.kill()


def test_a_run_killed_three_times_ends_as_the_undisturbed_one(ground, whole, nursery, capfd):
    folder = ground / "killed"
    alive = [kill_at_random(nursery, folder, random.Random(seed)) for seed in range(3)]
    assert sum(alive) >= 2
    assert run([*RESUME, "killed", "--output-format", "json"]) == 0
    assert json.dumps(json.loads(capfd.readouterr().out)["results"], sort_keys=True) == whole
    assert results(folder) == whole
    files = [(ground / name / "attempts.safetensors").read_bytes() for name in ("whole", "killed")]
    assert files[0] == files[1]
    assert not (folder / "parts").exists()


@pytest.mark.slow
def test_a_run_killed_twenty_times_ends_as_the_undisturbed_one(ground, whole, nursery):
    draws = random.Random(5)
    folder = ground / "killed-often"
    kills = 0
    while kills < 20:
        kills += kill_at_random(nursery, folder, draws)
        if (folder / "report.json").exists():
            assert run([*RESUME, str(folder)]) == 0
            assert results(folder) == whole
            folder = ground / f"killed-{kills}"  # it ended: the rest of the kills hit another run
    if (folder / "run.json").exists():
        assert run([*RESUME, str(folder)]) == 0
        assert results(folder) == whole


def test_two_processes_find_what_one_finds(ground, whole, nursery):
    for rank in nursery.start_two(*AUDIT, "-o", "two"):
        rank.finish()
    assert results(ground / "two") == whole
    files = [(ground / name / "attempts.safetensors").read_bytes() for name in ("whole", "two")]
    assert files[0] == files[1]
    read = [(ground / name / "verdicts.jsonl").read_text() for name in ("whole", "two")]
    records = [[json.loads(line) for line in text.splitlines()] for text in read]
    kept = [
        sorted(
            json.dumps({k: v for k, v in r.items() if k != "chain"}) for r in run if "image" in r
        )
        for run in records
    ]
    assert kept[0] == kept[1]
    assert json.loads((ground / "two" / "report.json").read_text())["run"]["processes"] == 2


@pytest.mark.slow
def test_two_processes_cascade_as_one_does(ground):
    assert run([*AUDIT, "--mode", "cascade", "-o", "one-cascade"]) == 0
    process = start(*AUDIT, "--mode", "cascade", "-o", "two-cascade")
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    assert results(ground / "two-cascade") == results(ground / "one-cascade")


@pytest.mark.slow
def test_two_processes_converge_as_one_does(ground):
    """Rounds are decided by the verdicts of all processes, so that each waits for the others."""
    audit = [*AUDIT, "--effort", "converged", "--tolerance", "1", "--eps", "3,2"]
    audit += ["--attacks", "saa,guided-swap", "--set", "audit.params.guided-swap.forwards=20"]
    assert run([*audit, "-o", "one-converged"]) == 0
    process = start(*audit, "-o", "two-converged")
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    found = json.loads(results(ground / "one-converged"))
    assert max(row["number"] for row in found["rounds"]) > 1
    assert results(ground / "two-converged") == results(ground / "one-converged")


@pytest.mark.slow
def test_a_run_of_two_processes_can_be_finished_by_one(ground, whole):
    folder = ground / "of-two"
    process = start(*AUDIT, "-o", "of-two")
    wait_for(lambda: process.poll() is None, lambda: (folder / "parts").exists() and size(folder))
    time.sleep(1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert run([*RESUME, "of-two"]) == 0
    assert results(folder) == whole


def test_a_second_process_in_the_directory_is_refused(ground, capfd):
    with owned(ground / "busy"):
        assert run([*AUDIT, "-o", "busy"]) == 2
    error = capfd.readouterr().err
    assert "another process is working in" in error
    assert not (ground / "busy" / "run.json").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_with_its_code_and_says_how_to_go_on(ground, capfd, number, code):
    folder = ground / f"signal-{code}"

    def send():
        while size(folder) == 0:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    assert run([*AUDIT, "--effort", "paper", "-o", folder.name]) == code
    sender.join()
    error = capfd.readouterr().err
    assert f"robust0 audit --resume {folder.name}" in error
    assert not (folder / "report.json").exists()
