"""What is refused without torch, and what is said before torch is loaded."""

import subprocess
import sys

import pytest
import timm

import robust0.models
from robust0.architectures import architectures, check_architecture, own
from robust0.commands.early import MIN_BATCH
from robust0.errors import ModelError
from robust0.models.build import OWN
from robust0.models.fast import oracle

AUDIT = ["audit", "weights.safetensors", "--data", "sample"]
REFUSED = [
    (["audit"], "no model was named"),
    (["audit", "nothing"], "no model named 'nothing'"),
    (["audit", "resnet18"], "resnet18 is the name of an architecture"),
    (["audit", "none.safetensors"], "there is no file"),
    (["audit", "folder"], "folder holds no model.safetensors"),
    ([*AUDIT, "--eps", "x"], "whole numbers"),
    ([*AUDIT, "--attacks", "sparse"], "no attack or group"),
    ([*AUDIT, "--batch-size", "3"], "at least 4"),
    ([*AUDIT, "--set", "audit.image=3"], "audit.image"),
    ([*AUDIT, "--fail-under", "saa=0.6"], "would be a floor of 0.6 percent"),
    ([*AUDIT, "--device", "abacus"], "unknown device"),
    ([*AUDIT, "--factory", "nowhere_at_all:make"], "no module nowhere_at_all"),
    ([*AUDIT, "--factory", "nowhere"], "does not name a factory"),
    ([*AUDIT[:3], "cifar"], "unknown dataset"),
    ([*AUDIT[:3], "npz:none.npz"], "there is no file none.npz"),
    ([*AUDIT, "--data-dir", "none"], "there is no folder none"),
    ([*AUDIT, "-o", "used"], "already holds a run"),
    (["audit", "--resume", "folder"], "holds no audit"),
    (["harden", "--model", "resnet1"], "timm knows no network"),
    (["harden", "--method", "magic"], "no training method"),
    (["harden", "--epochs", "0"], "epochs"),
    (["harden", "--data", "folder:none"], "there is no folder none"),
    (["harden", "--from", "nothing"], "no model named"),
    (["harden", "--resume", "folder"], "holds no training run"),
    (["harden", "--recipe", "none"], "no recipe named"),
    (["gate", "folder", "--fail-under", "saa=60"], "report.json is missing"),
    (["report", "nowhere"], "there is no run directory"),
    (["zoo", "show", "nothing"], "no model named"),
    (["zoo", "verify", "nothing"], "no model named"),
    (["zoo", "convert", "none.pth", "-o", "x.safetensors", "--arch", "resnet18"], "none.pth"),
    (["data", "info", "nowhere"], "unknown dataset"),
    (["recipe", "show", "none"], "no recipe named"),
]
SCRIPT = """
import os
import sys
class Guard:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "torchvision"}:
            sys.stderr.write("IMPORTED\\n")
            sys.stderr.flush()
            os._exit(77)
sys.meta_path.insert(0, Guard())
from robust0.cli.app import run
"""


def guarded(script, place):
    (place / "folder").mkdir()
    (place / "used").mkdir()
    (place / "used" / "run.json").write_text("{}")
    (place / "weights.safetensors").write_bytes(b"")
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + script], capture_output=True, text=True, check=False,
        cwd=place,
    )  # fmt: skip


def test_words_are_refused_before_torch_is_imported(tmp_path):
    script = f"for arguments in {[words for words, _ in REFUSED]!r}:\n"
    script += "    assert run(arguments) == 2, arguments\n"
    script += "assert 'torch' not in sys.modules"
    done = guarded(script, tmp_path)
    assert done.returncode == 0, done.stderr
    messages = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    hints = [line for line in done.stderr.splitlines() if line.startswith("hint: ")]
    assert len(messages) == len(hints) == len(REFUSED), done.stderr
    for (words, expected), message in zip(REFUSED, messages, strict=True):
        assert expected in message, words


@pytest.mark.parametrize("arguments", [AUDIT, ["harden", "--data", "sample"]])
def test_a_line_appears_before_torch_is_loaded(tmp_path, arguments):
    done = guarded(f"run({arguments!r})", tmp_path)
    assert done.returncode == 77
    assert done.stderr == f"robust0 {arguments[0]}: loading PyTorch ...\nIMPORTED\n"


def test_names_of_networks_are_those_that_timm_registers():
    assert robust0.models.preact
    assert set(architectures()) == set(timm.list_models())
    assert set(own()) == set(OWN)
    for name in ("resnet18", "resnet18.a1_in1k", "gluon_resnet18_v1b", "preact_resnet18_w8"):
        check_architecture(name)
    with pytest.raises(ModelError, match="not the name"):
        check_architecture("Ü")


def test_the_smallest_call_is_the_same_everywhere():
    assert min(oracle.MIN_BATCH, oracle.VOTING_BATCH) == MIN_BATCH
