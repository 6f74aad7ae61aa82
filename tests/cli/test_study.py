"""``robust0 study`` as its users meet it: tables, files, refusals; on a network of one layer."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from robust0.cli.app import run
from robust0.models.checkpoint import Budget, Metadata, save_checkpoint
from robust0.rng import seeded

MODULE = """
from torch import nn


def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 6 * 6, 4), nn.Softplus(), nn.Linear(4, 3))


def no_classifier():
    return nn.Conv2d(3, 3, 1)
"""
COMMON = ("--factory", "study_factory:make", "--data", "npz:line.npz", "--images", "12")


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "study_factory.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with seeded("place"):
        images = (torch.rand(30, 6, 6, 3) * 255).to(torch.uint8).numpy()
        network = nn.Sequential(nn.Flatten(), nn.Linear(108, 4), nn.Softplus(), nn.Linear(4, 3))
    labels = np.arange(30) % 3
    np.savez("line.npz", images=images, labels=labels)
    metadata = Metadata.made(
        factory="study_factory:make", classes=3, input_size=(3, 6, 6), mean=(0.0,) * 3,
        std=(1.0,) * 3, method="sparse-at", train_budget=Budget(unit="pixel", amount=6),
        eval_budget=Budget(unit="pixel", amount=2), dataset="npz:line.npz", epochs=3,
    )  # fmt: skip
    save_checkpoint("a.safetensors", network, metadata)
    return tmp_path


@pytest.mark.parametrize(
    ("part", "more"),
    [
        ("spectrum", ["--top", "3", "--attack", "training", "--attack", "clean"]),
        ("landscape", ["--grid", "3", "--attack", "training,alpha=0.25"]),
        ("overlap", ["--split", "train", "--against", "sparse-rs,queries=20"]),
        ("interpolate", ["--points", "0,1", "--split", "train"]),
        ("gradients", ["--against", "multi-step,steps=3", "--batch", "8"]),
    ],
)
def test_every_part_leaves_json_and_figures(place, part, more, capfd):
    words = ["study", part, "a.safetensors", *COMMON, *more, "-o", "s", "--output-format", "json"]
    assert run(words) == 0
    rows = json.loads(capfd.readouterr().out)
    assert rows[0]["model"] == "a"
    document = json.loads((place / "s" / f"{part}.json").read_text(encoding="utf-8"))
    assert document["part"] == part
    assert (place / "s" / f"{part}.png").stat().st_size > 5000
    assert (place / "s" / f"{part}.svg").stat().st_size > 5000
    if part == "interpolate":
        assert run(words) == 0  # nothing is left to do
        assert json.loads(capfd.readouterr().out) == rows


def test_the_attack_of_training_has_the_budget_of_training(place, capfd):
    words = ["study", "overlap", "a.safetensors", *COMMON, "--split", "train", "-o", "s"]
    assert run([*words, "--against", "one-step,eps=2", "--output-format", "json"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert row["first"] == "training attack, one step, 6 pixels"
    assert row["second"] == "one-step, 2 pixels"


def test_parts_in_one_folder_share_a_page(place):
    for part in ("interpolate", "gradients"):
        assert run(["study", part, "a.safetensors", *COMMON, "--split", "train", "-o", "s"]) == 0
    page = (place / "s" / "study.html").read_text(encoding="utf-8")
    assert 'id="interpolate"' in page
    assert 'id="gradients"' in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["landscape", "a.safetensors", *COMMON, "--grid", "0"], "an odd number of points"),
        (["spectrum", "a.safetensors", *COMMON, "--attack", "trainig"], "trainig"),
        (["spectrum", "a.safetensors", *COMMON, "--attack", "training,stepz=2"], "stepz"),
        (["spectrum", "a.safetensors", *COMMON, "--attack", "saa"], "group of attacks"),
        (["spectrum", "a.safetensors", *COMMON, "--eps", "40"], "exceeds the 36 pixels"),
        (["spectrum", "nothing.safetensors", *COMMON], "nothing.safetensors"),
        (["spectrum"], "no model was named"),
        (["interpolate", "a.safetensors", *COMMON, "--points", "0,x"], "must be numbers"),
        (["spectrum", *COMMON], "does not say"),
        (
            ["spectrum", "--factory", "study_factory:no_classifier", "--data", "npz:line.npz",
             "--attack", "clean"],
            "its forward must return one row of class logits",
        ),
        (["overlap", "a.safetensors", *COMMON, "--audit", "nowhere"], "no run directory"),
        (
            ["overlap", "a.safetensors", *COMMON, "--audit", "x", "--against", "saif"],
            "leave out one of them",
        ),
        (["training", "nowhere"], "holds no training run"),
    ],
)  # fmt: skip
def test_mistakes_are_two_lines_and_exit_2(place, words, message, capfd):
    assert run(["study", *words]) == 2
    said = capfd.readouterr().err
    assert message in said
    assert not (place / "runs").exists()


def test_a_killed_study_goes_on_to_the_same_files(place):
    words = ["study", "landscape", "a.safetensors", *COMMON, "--grid", "9"]
    paths = os.pathsep.join([str(Path(__file__).parents[2]), str(place)])
    running = subprocess.Popen(
        [sys.executable, "-m", "robust0", *words, "-o", "cut"],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    rows = place / "cut" / "landscape"
    deadline = time.monotonic() + 60
    while not (rows / "0-row-000.json").exists():
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    kept = {path: path.stat().st_mtime_ns for path in rows.glob("*.json")}
    assert len(kept) < 10  # it was killed before its end
    assert not (place / "cut" / "landscape.json").exists()
    for folder in ("cut", "whole"):
        assert run([*words, "-o", folder]) == 0
    assert all(path.stat().st_mtime_ns == then for path, then in kept.items())
    results = [(place / name / "landscape.json").read_text() for name in ("cut", "whole")]
    assert results[0] == results[1]


def test_an_audit_brings_its_strongest_attack_and_its_numbers(place, capfd):
    words = ["a.safetensors", "--factory", "study_factory:make"]
    data = ["--data", "npz:line.npz"]
    audit = ["audit", *words, *data, "--images", "12", "--eps", "2", "--effort", "smoke"]
    assert run([*audit, "--attacks", "sparse-rs,saif", "-o", "audit"]) == 0
    capfd.readouterr()
    told = ["--images", "12", "--audit", "audit", "--output-format", "json"]
    assert run(["study", "overlap", *words, *told, "-o", "s"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert row["second"].endswith("of the audit, 2 pixels")
    assert row["images"] > 0
    assert run(["study", "interpolate", *words, *data, *told, "-o", "s"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    report = json.loads((place / "audit" / "report.json").read_text(encoding="utf-8"))
    worst = report["results"]["budgets"][0]["ensembles"][-1]["robust"]["share"]
    assert row["worst case"] == f"{100 * worst:.1f} %"

    np.savez("other.npz", images=np.zeros((30, 6, 6, 3), np.uint8), labels=np.arange(30) % 3)
    assert run(["study", "overlap", *words, "--data", "npz:other.npz", *told]) == 2
    assert "not of npz:other.npz" in capfd.readouterr().err
    (place / "line.npz").write_bytes((place / "other.npz").read_bytes())
    assert run(["study", "overlap", *words, *told]) == 2
    assert "does not hold the images" in capfd.readouterr().err
    (place / "audit" / "report.json").unlink()
    assert run(["study", "overlap", *words, *told]) == 2
    assert "is not finished" in capfd.readouterr().err


def test_an_audit_of_another_model_is_refused(place, capfd):
    words = ["--factory", "study_factory:make", "--data", "npz:line.npz"]
    audit = ["audit", "a.safetensors", *words, "--images", "12", "--eps", "2", "--effort", "smoke"]
    assert run([*audit, "--attacks", "sparse-rs", "-o", "audit"]) == 0
    weights = load_file("a.safetensors")
    save_file({name: 2 * value for name, value in weights.items()}, "b.safetensors")
    told = ["--attack", "one-step", "--eps", "2", "--audit", "audit"]
    assert run(["study", "interpolate", "b.safetensors", *words, *told]) == 2
    assert "is of a.safetensors, not of b.safetensors" in capfd.readouterr().err


def test_an_unfinished_training_run_is_refused(place, capfd):
    folder = place / "run"
    folder.mkdir()
    (folder / "recipe.yaml").write_text("", encoding="utf-8")
    (folder / "metrics.jsonl").write_text("", encoding="utf-8")
    (folder / "best.safetensors").write_bytes((place / "a.safetensors").read_bytes())
    for words in (["training", "run"], ["spectrum", "run", *COMMON]):
        assert run(["study", *words]) == 2
        assert "is not finished" in capfd.readouterr().err
