"""A real audit of a real network, gated: the same model passes, a degraded one fails."""

import numpy as np
import pytest

from robust0.cli.app import run

NETS = """
import torch
from torch import nn

def network(pixels):
    '''The brightest channel wins, over this many pixels.'''
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    weight = torch.zeros(3, 3, 64)
    for label in range(3):
        weight[label, label, :pixels] = 64 / pixels
    with torch.no_grad():
        net[1].weight.copy_(weight.flatten(1))
        net[1].bias.zero_()
    return net

def good():
    return network(64)

def degraded():
    return network(8)
"""
AUDIT = ["--data", "npz:data.npz", "--eps", "2", "--effort", "smoke", "--attacks", "saa"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    (tmp_path / "r0_gate_nets.py").write_text(NETS)
    draw, labels = np.random.default_rng(3), np.arange(36) % 3
    images = draw.integers(60, 120, (36, 8, 8, 3)).astype(np.uint8)
    images[np.arange(36), :, :, labels] += 60
    np.savez("data.npz", images=images, labels=labels)
    return tmp_path


def audit(name):
    factory = ["--factory", f"r0_gate_nets:{name}"]
    assert run(["audit", *factory, *AUDIT, "-o", name]) == 0


def test_a_degraded_model_fails_and_the_same_model_passes(place, capsys):
    audit("good")
    assert run(["gate", "good", "--write-baseline", "baseline.json"]) == 0
    compare = ["--baseline", "baseline.json", "--max-drop", "1.0", "--policy", "significant"]
    capsys.readouterr()
    replay = ["--replay", "--fail-on-replay", "--factory", "r0_gate_nets:good"]
    assert run(["gate", "good", *compare, *replay]) == 0
    assert capsys.readouterr().out.startswith("gate passed")
    audit("degraded")
    capsys.readouterr()
    assert run(["gate", "degraded", *compare]) == 1
    assert capsys.readouterr().out.startswith("gate FAILED")
    assert run(["gate", "degraded", "--baseline", "baseline.json", "--metric", "clean"]) == 0
    assert run(["report", "degraded", "--output-format", "json"]) == 0


def test_another_precision_is_said_in_the_verdict_line_and_can_be_taken_over(place, capsys):
    factory = ["--factory", "r0_gate_nets:good", *AUDIT]
    audited = ["audit", *factory, "--precision", "bf16", "--batch-size", "24", "-o", "before"]
    assert run(audited) == 0
    assert run(["gate", "before", "--write-baseline", "baseline.json"]) == 0
    assert run(["audit", *factory, "--precision", "fp32", "-o", "other"]) == 0
    assert run(["audit", *factory, "--like", "baseline.json", "-o", "same"]) == 0
    capsys.readouterr()
    run(["gate", "other", "--baseline", "baseline.json", "--max-drop", "100"])
    out = capsys.readouterr()
    first = out.out.splitlines()[0]
    assert first == "gate passed: 2 conditions met (the searches differ: bfloat16 -> float32)"
    assert "audit --like baseline.json" in " ".join(out.err.split())
    assert run(["gate", "same", "--baseline", "baseline.json"]) == 0
    out = capsys.readouterr()
    assert out.out.startswith("gate passed: 2 conditions met\n")
    assert "differs from the baseline" not in out.err
