import sys
from textwrap import dedent

import pytest
import torch
from torch import nn

from robust0.errors import ModelError
from robust0.models.checkpoint import Metadata, save_checkpoint
from robust0.models.factory import from_factory

SOURCE = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(12, 3)

        def forward(self, images):
            return self.linear(images.flatten(1))

    def make():
        return Net()

    def demanding(size):
        return Net()

    def failing():
        raise RuntimeError("no\\nluck")

    def nothing():
        return None

    class Shelf:
        make = staticmethod(make)

    constant = 3
"""
FACTS = {"classes": 3, "input_size": (3, 2, 2), "mean": (0,) * 3, "std": (1,) * 3}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package in the current folder, as a user has it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "nets.py").write_text(dedent(SOURCE))
    (tmp_path / "mine" / "needy.py").write_text("import no_such_dependency\n")
    (tmp_path / "mine" / "broken.py").write_text("def make(:\n")
    (tmp_path / "mine" / "rude.py").write_text("raise KeyError('at import')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == "mine"]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["mine.nets:make", "mine.nets:Net", "mine.nets:Shelf.make"])
def test_a_network_without_weights(name, package):
    made = from_factory(name)
    assert made.network(torch.rand(2, 3, 2, 2)).shape == (2, 3)
    assert made.metadata is None
    assert made.sha256 is None


def test_fresh_weights_come_from_the_seed(package):
    weights = [
        from_factory("mine.nets:make", seed=seed).network.linear.weight for seed in (0, 0, 1)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_weights_are_loaded_strictly(package):
    first = from_factory("mine.nets:make", seed=1).network
    metadata = Metadata.made(factory="mine.nets:make", **FACTS)
    digest = save_checkpoint("w.safetensors", first, metadata)
    made = from_factory("mine.nets:make", "w.safetensors")
    assert torch.equal(made.network.linear.weight, first.linear.weight)
    assert made.sha256 == digest
    assert made.metadata == metadata


def test_weights_of_another_network(package):
    save_checkpoint("w.safetensors", nn.Linear(12, 3), Metadata.made(factory="x:y", **FACTS))
    with pytest.raises(ModelError, match=r"lacks 2 tensors, first 'linear\.weight'"):
        from_factory("mine.nets:make", "w.safetensors")


def test_weights_that_are_not_there(package):
    with pytest.raises(ModelError, match="no checkpoint at"):
        from_factory("mine.nets:make", "gone.safetensors")


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("mine.nets", "does not name a factory", "package.module:callable"),
        ("mine/nets.py:make", "does not name a factory", "package.module:callable"),
        (":make", "does not name a factory", "package.module:callable"),
        ("mine.nets:", "does not name a factory", "package.module:callable"),
        ("mine.nets:make()", "does not name a factory", "package.module:callable"),
        ("mine.gone:make", "there is no module mine.gone", "was searched"),
        ("gone.nets:make", "there is no module gone.nets", "was searched"),
        (
            "mine.needy:make",
            "needs the module no_such_dependency",
            "pip install no_such_dependency",
        ),
        ("mine.broken:make", "importing mine.broken failed: SyntaxError", "ROBUST0_DEBUG"),
        ("mine.rude:make", "importing mine.rude failed: KeyError: 'at import'", "ROBUST0_DEBUG"),
        ("mine.nets:mkae", "mine.nets has no mkae", "after the colon"),
        ("mine.nets:Shelf.mkae", "mine.nets has no Shelf.mkae", "after the colon"),
        ("mine.nets:constant", "is a int, expected a callable", "function or class"),
        ("mine.nets:demanding", "without arguments failed: TypeError", "ROBUST0_DEBUG"),
        ("mine.nets:failing", "failed: RuntimeError: no luck", "ROBUST0_DEBUG"),
        (
            "mine.nets:nothing",
            "returned a NoneType, expected a torch.nn.Module",
            "return the network",
        ),
    ],
)
def test_each_step_has_its_own_refusal(name, message, hint, package):
    with pytest.raises(ModelError) as refusal:
        from_factory(name)
    assert message in refusal.value.message
    assert "\n" not in refusal.value.message
    assert hint in refusal.value.hint
