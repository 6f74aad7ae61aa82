import argparse
import os
import pickle
import sys

import pytest
import torch
from safetensors.torch import load_file

from robust0.errors import ModelError
from robust0.models.build import NetworkSpec, build
from robust0.models.checkpoint import load_checkpoint
from robust0.models.convert import convert
from robust0.models.convert_worker import serve
from robust0.models.normalize import bare


@pytest.fixture(scope="module")
def state(thin_spec):
    return bare(build(thin_spec, seed=3)).state_dict()


@pytest.fixture
def source(tmp_path):
    return tmp_path / "old.pth"


class Exploit:
    """Runs a command when it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_a_training_checkpoint_becomes_ours(state, source, tmp_path, thin_spec):
    prefixed = {f"module.{name}": value for name, value in state.items()}
    content = {"state_dict": prefixed, "epoch": 3, "args": argparse.Namespace(lr=0.1)}
    torch.save(content, source)
    target = tmp_path / "new.safetensors"
    digest = convert(source, target, thin_spec, class_names=tuple("abcdefghij"), dataset="cifar10")
    loaded = load_checkpoint(target)
    assert loaded.sha256 == digest
    assert loaded.metadata.class_names == tuple("abcdefghij")
    assert loaded.metadata.dataset == "cifar10"
    got = loaded.network.network.state_dict()
    assert all(torch.equal(got[name], value) for name, value in state.items())


def test_code_in_a_pickle_is_refused_and_not_run(source, tmp_path, thin_spec):
    witness = tmp_path / "witness"
    torch.save({"state_dict": Exploit(f"touch {witness}")}, source)
    with pytest.raises(ModelError, match="needs more than plain weights") as refusal:
        convert(source, tmp_path / "new.safetensors", thin_spec)
    assert "state_dict()" in refusal.value.hint
    assert not witness.exists()
    assert not (tmp_path / "new.safetensors").exists()


def test_the_weights_of_another_network(state, source, tmp_path):
    torch.save(state, source)
    other = NetworkSpec("preact_resnet18_w8", 100, (3, 32, 32), (0.0,) * 3, (1.0,) * 3)
    with pytest.raises(ModelError, match=r"old\.pth has 'linear\.weight' in shape \(10, 64\)"):
        convert(source, tmp_path / "new.safetensors", other)


def test_a_missing_source(tmp_path, thin_spec):
    with pytest.raises(ModelError, match="no file at"):
        convert(tmp_path / "gone.pth", tmp_path / "new.safetensors", thin_spec)


def test_unpickling_that_takes_too_long(state, source, tmp_path, thin_spec):
    torch.save(state, source)
    with pytest.raises(ModelError, match=r"took more than 0\.01 seconds"):
        convert(source, tmp_path / "new.safetensors", thin_spec, seconds=0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux only")
def test_a_bomb_hits_the_memory_limit(source, tmp_path, thin_spec):
    """One stored number that claims to be 16 GB of them."""
    torch.save({"weight": torch.zeros(1).expand(2**32)}, source)
    assert source.stat().st_size < 10_000
    with pytest.raises(ModelError, match=r"cannot be copied: .*memory"):
        convert(source, tmp_path / "new.safetensors", thin_spec)


# --- the worker, called here without its process ------------------------------------------------


@pytest.fixture
def work(source, tmp_path, monkeypatch):
    """Run the worker on some content; it must not limit the process of the tests."""
    monkeypatch.setattr("robust0.models.convert_worker._limit", lambda size: None)

    def run(content=None, data=None):
        if data is None:
            torch.save(content, source)
        else:
            source.write_bytes(data)
        return serve(source, tmp_path / "out.safetensors")

    return run


@pytest.mark.parametrize("key", [None, "state_dict", "model", "model_state_dict", "net"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
def test_wrappings_are_removed(key, prefix, work, tmp_path):
    state = {
        f"{prefix}a.module.b": torch.ones(2, dtype=torch.float16),
        f"{prefix}n": torch.tensor(3),
    }
    assert work(state if key is None else {key: state, "epoch": 1})["kind"] == "ok"
    tensors = load_file(tmp_path / "out.safetensors")
    assert set(tensors) == {"a.module.b", "n"}
    assert tensors["a.module.b"].dtype == torch.float32
    assert tensors["n"].dtype == torch.int64


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (torch.ones(3), "holds a Tensor"),
        ([1, 2], "holds a list"),
        ({}, "holds a dict"),
        ({"a": torch.ones(1), "b": 3}, "'b' is a int"),
        ({3: torch.ones(1)}, "3 is a Tensor"),
        ({"a": torch.ones(1), "module.a": torch.ones(1)}, "'a' occurs twice"),
        ({"a": torch.ones(2, 2).to_sparse()}, "'a' is sparse"),
    ],
)
@pytest.mark.filterwarnings("ignore:Validating sparse tensor")
def test_what_is_not_a_state_dict(content, words, work):
    answer = work(content)
    assert answer["kind"] == "shape"
    assert words in answer["detail"]


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", b"PK\x03\x04 broken", pickle.dumps({"a": 1}, protocol=2)[:5]]
)
def test_what_is_not_a_pickle(data, work):
    assert work(data=data)["kind"] in ("unreadable", "refused")


def test_whole_modules_are_refused(work):
    assert work(torch.nn.Linear(2, 2))["kind"] == "refused"
