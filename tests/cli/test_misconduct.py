"""Models that misbehave: each ends in exit 3 with the run kept and one line that says what it did.

Never 0 or 1: those are what a gate says.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from robust0.cli.app import run
from robust0.rng import seeded

MODULE = """
import sys
import torch
from torch import nn


class Line(nn.Module):
    later = 12  # forwards of the checked model before it misbehaves: the audit has begun by then

    def __init__(self):
        super().__init__()
        self.layer, self.asked = nn.Linear(3 * 6 * 5, 3), 0

    def forward(self, images):
        self.asked += 1
        logits = self.layer(images.flatten(1))
        return self.misbehave(images, logits) if self.asked > self.later else logits

    def misbehave(self, images, logits):
        return logits


class Raises(Line):
    def misbehave(self, images, logits):
        raise ValueError("no\\n more")


class Leaves(Line):
    def misbehave(self, images, logits):
        sys.exit(0)


class Scribbles(Line):
    def misbehave(self, images, logits):
        with torch.no_grad():
            images.mul_(0.5)
        return logits


class Imagines(Line):
    def misbehave(self, images, logits):
        return logits.to(torch.complex64)


class RaisesAtOnce(Raises):
    later = 0


class LeavesAtOnce(Leaves):
    later = 0


class Tires(Line):
    def misbehave(self, images, logits):
        return logits.roll(1, dims=1)


class Remembers(Line):
    # Says something else about every image that it has met often.
    def __init__(self):
        super().__init__()
        self.met = {}

    def forward(self, images):
        logits = self.layer(images.flatten(1))
        for row, image in enumerate(images):
            key = image.detach().numpy().tobytes()
            self.met[key] = self.met.get(key, 0) + 1
            if self.met[key] > 40:
                logits = logits.index_fill(0, torch.tensor([row]), 0.5)
        return logits


class Wavers(Line):
    # Only copies that search are asked this often.
    later = 60

    def misbehave(self, images, logits):
        return -logits


def leave():
    raise SystemExit(0)
"""
RUN = ("--data", "npz:line.npz", "--eps", "4", "--effort", "smoke", "--attacks", "sparse-rs",
       "--batch-size", "16", "--fail-under", "saa=0", "-o", "run")  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Images on which a network of the seed 0 is right, and the factories."""
    (tmp_path / "rude.py").write_text(MODULE)
    (tmp_path / "rude_import.py").write_text("import argparse\nraise SystemExit(0)\n")
    with seeded("weights", 0):
        layer = nn.Linear(3 * 6 * 5, 3)
    with seeded("misconduct"):
        pixels = torch.randint(0, 256, (40, 3, 6, 5), dtype=torch.uint8)
    labels = layer((pixels / 255).flatten(1)).argmax(dim=1)
    np.savez(
        tmp_path / "line.npz", images=pixels.permute(0, 2, 3, 1).numpy(), labels=labels.numpy()
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ROBUST0_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ROBUST0_OFFLINE", "1")
    monkeypatch.setattr("robust0.auditing.estimate.SECONDS", 0.0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(before)


def audited(name, *more):
    options = [word if word != "saa=0" else "sparse-rs=0" for word in RUN]
    return run(["audit", "--factory", name, *options, *more])


@pytest.mark.parametrize(
    ("name", "message", "begun"),
    [
        ("rude:Raises", "the model raised ValueError: no more in its forward", True),
        ("rude:Leaves", "the model raised SystemExit: 0 in its forward", True),
        ("rude:Scribbles", "the model changes its input in place", True),
        ("rude:Imagines", "the model returns complex logits", True),
        ("rude:RaisesAtOnce", "fails on 3x6x5 images: ValueError: no more", False),
        ("rude:LeavesAtOnce", "fails on 3x6x5 images: SystemExit: 0", False),
        ("rude:leave", "calling rude:leave() without arguments tried to end the program", False),
        ("rude_import:make", "importing rude_import tried to end the program", False),
    ],
)
def test_misconduct_is_exit_3_and_one_line(name, message, begun, capsys):
    assert audited(name) == 3
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert Path("run/run.json").exists() == begun
    assert not Path("run/report.json").exists()


@pytest.mark.parametrize("name", ["rude:Tires", "rude:Remembers", "rude:Wavers"])
def test_a_model_that_changes_its_answers_is_flagged(name, capsys):
    assert audited(name) == 4
    assert "stateful-model" in capsys.readouterr().err
    flags = json.loads(Path("run/report.json").read_text())["results"]["flags"]
    assert [flag["fatal"] for flag in flags if flag["name"] == "stateful-model"] == [True]
    Path("run/report.json").unlink()
    assert run(["report", "run"]) == 0
    flags = json.loads(Path("run/report.json").read_text())["results"]["flags"]
    assert "stateful-model" in {flag["name"] for flag in flags}, "a rebuilt report still says so"


def test_a_steady_model_is_not(capsys):
    assert audited("rude:Line") == 0
    assert "stateful-model" not in capsys.readouterr().err


def test_training_a_model_that_leaves_is_exit_3(capsys):
    small = ("--data", "npz:line.npz", "--epochs", "1", "--batch-size", "8", "-o", "trained")
    changes = ("probe.images=0", "reserved=0", "threat.pixels=4")
    more = [word for change in changes for word in ("--set", f"training.{change}")]
    more += ["--method", "standard", "--set", "threat.pixels=4"]
    assert run(["harden", "--factory", "rude:LeavesAtOnce", *small, *more]) == 3
    assert "the model fails on 3x6x5 images: SystemExit: 0" in capsys.readouterr().err
    assert not Path("trained").exists()
