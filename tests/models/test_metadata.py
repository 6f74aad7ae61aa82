import json
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import nn

from robust0.errors import ModelError
from robust0.models.build import NetworkSpec, skeleton
from robust0.models.checkpoint import load_checkpoint, read_metadata
from robust0.models.metadata import SCHEMA, Budget, Metadata, read

PATH = Path("weights.safetensors")
SPEC = NetworkSpec("resnet18_small", 2, (1, 28, 28), (0.5,), (0.25,), {"drop_rate": 0.1})


def full():
    return Metadata.of(
        SPEC,
        adaptations=("resnet18_small for 28x28 images",),
        class_names=("straße", "n01440764 tench"),
        dataset="mnist",
        variant="official",
        training_ids="0123456789abcdef",
        recipe="ab" * 32,
        method="fast-ls",
        train_budget=Budget(unit="pixel", amount=120),
        eval_budget=Budget(unit="feature", amount=20),
        epochs=100,
        seed=3,
        metrics={"clean": 0.83, "probe": 0},
    )


def test_every_field_survives_the_file():
    assert read(full().strings(), PATH) == full()


def test_a_factory_is_told_but_has_no_architecture():
    made = Metadata.made(
        factory="mine.nets:wide", classes=2, input_size=(3, 8, 8), mean=(0,) * 3, std=(1,) * 3
    )
    assert set(made.strings()) == {"robust0"}
    again = read(made.strings(), PATH)
    assert again == made
    with pytest.raises(ModelError, match=r"factory mine\.nets:wide") as refusal:
        again.spec()
    assert "--factory mine.nets:wide" in refusal.value.hint


def test_the_plain_strings_are_timms_arguments():
    strings = full().strings()
    assert strings["arch"] == "resnet18_small"
    assert json.loads(strings["arch_args"]) == {"drop_rate": 0.1, "num_classes": 2, "in_chans": 1}
    assert "arch" not in json.loads(strings["robust0"])


def test_versions_and_date_are_filled_in():
    assert {"robust0", "python", "torch", "timm"} <= set(full().versions)
    assert full().created is not None


def test_a_file_from_elsewhere_has_none():
    assert read({"format": "pt"}, PATH) is None


def test_a_plain_safetensors_file_needs_its_network_named(editor):
    editor.header["__metadata__"] = {"format": "pt"}
    path = editor.write()
    for reader in (load_checkpoint, read_metadata):
        with pytest.raises(ModelError, match="no robust0 metadata") as refusal:
            reader(path)
        assert "--arch" in refusal.value.hint
        assert "--factory" in refusal.value.hint


def refused(**changes):
    """The message for metadata with these fields changed; None removes a field."""
    strings = full().strings()
    facts = {**json.loads(strings["robust0"]), **changes}
    strings["robust0"] = json.dumps({k: v for k, v in facts.items() if v is not None})
    with pytest.raises(ModelError) as refusal:
        read(strings, PATH)
    assert refusal.value.hint
    assert len(refusal.value.message) < 500
    return refusal.value


def test_a_newer_schema():
    refusal = refused(schema=SCHEMA + 1)
    assert f"schema {SCHEMA + 1}" in refusal.message
    assert "upgrade" in refusal.hint


@pytest.mark.parametrize("schema", [None, "1", 0, -1, True, 1.0])
def test_a_schema_that_is_not_one(schema):
    assert "without a schema number" in refused(schema=schema).message


HOSTILE = {
    "surprise": {"surprise": 1},
    "classes": {"classes": 1},
    "classes: ": {"classes": "2"},
    "class_names.0": {"class_names": ["\x1b[2J", "b"]},
    "3 class names": {"class_names": ["a", "b", "c"]},
    "class_names.1": {"class_names": ["a", "b" * 5000]},
    "input_size.1": {"input_size": [1, 0, 28]},
    "input_size.2": {"input_size": [1, 28, 10**9]},
    "one value per channel": {"mean": [0.5, 0.5]},
    "std must be positive": {"std": [0.0]},
    "std.0": {"std": ["1"]},
    "train_budget.unit": {"train_budget": {"unit": "voxel", "amount": 1}},
    "train_budget.amount": {"train_budget": {"unit": "pixel", "amount": 0}},
    "train_budget.more": {"train_budget": {"unit": "pixel", "amount": 1, "more": 1}},
    "recipe": {"recipe": "../../etc/passwd"},
    "training_ids": {"training_ids": "XYZ"},
    "seed": {"seed": -1},
    "metrics.clean": {"metrics": {"clean": "high"}},
    "metrics": {"metrics": {str(n): 0.0 for n in range(1000)}},
    "versions": {"versions": {str(n): "1" for n in range(1000)}},
    "created": {"created": "yesterday"},
    "exactly one of arch and factory": {"factory": "os:abort"},
    "adaptations": {"adaptations": ["x"] * 100},
}


@pytest.mark.parametrize(("words", "changes"), HOSTILE.items())
def test_hostile_values(words, changes):
    assert words in refused(**changes).message


ARCHITECTURES = {
    "/tmp/evil": "is not the name of a timm network",
    "../evil": "is not the name of a timm network",
    "hf-hub:owner/evil": "is not the name of a timm network",
    "local-dir:/tmp": "is not the name of a timm network",
    "resnet18\n": "is not the name of a timm network",
    "ResNet18": "is not the name of a timm network",
    "a" * 150: "is not the name of a timm network",
    "": "is not the name of a timm network",
    "resnet_18000": "timm knows no network",
    "resnet18.no_such_tag": "has no weights tagged",
    "b" * 1000: "invalid metadata: arch",
}


@pytest.mark.parametrize(("arch", "words"), ARCHITECTURES.items())
def test_hostile_architectures(arch, words):
    with pytest.raises(ModelError, match=words):
        read({**full().strings(), "arch": arch}, PATH)


ARGUMENTS = {
    "not JSON": "no",
    "not JSON:": "",
    "not JSON: ": '{"drop_rate": NaN, "num_classes": 2, "in_chans": 1}',
    "a key occurs twice": '{"num_classes": 2, "num_classes": 2}',
    "not a JSON object": "[]",
    "20013 characters": '{"name": "' + "x" * 20_001 + '"}',
    "'checkpoint_path' cannot be set": '{"checkpoint_path": "x", "num_classes": 2, "in_chans": 1}',
    "'pretrained' cannot be set": '{"pretrained": true, "num_classes": 2, "in_chans": 1}',
    "'pretrained_cfg' cannot be set": '{"pretrained_cfg": "x", "num_classes": 2, "in_chans": 1}',
    "'features_only' cannot be set": '{"features_only": true, "num_classes": 2, "in_chans": 1}',
    "'__class__' cannot be set": '{"__class__": 1, "num_classes": 2, "in_chans": 1}',
    "argument depths": '{"depths": [1000000], "num_classes": 2, "in_chans": 1}',
    "argument depths ": '{"depths": ' + str([1] * 17) + ', "num_classes": 2, "in_chans": 1}',
    "invalid metadata: arch_args": '{"depths": [[1]], "num_classes": 2, "in_chans": 1}',
    "invalid metadata: arch_args.x": '{"x": {"y": 1}, "num_classes": 2, "in_chans": 1}',
    "contradict": '{"num_classes": 3, "in_chans": 1}',
    "contradict its": '{"num_classes": 2}',
    "33 model arguments": json.dumps(
        {"num_classes": 2, "in_chans": 1, **{f"a{n}": n for n in range(33)}}
    ),
}


@pytest.mark.parametrize(("words", "text"), ARGUMENTS.items())
def test_hostile_arguments(words, text):
    with pytest.raises(ModelError) as refusal:
        read({**full().strings(), "arch_args": text}, PATH)
    assert words.strip() in refusal.value.message


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a":' * 100_000, '{"schema": 1, "schema": 1}'])
def test_metadata_that_is_not_json(text):
    with pytest.raises(ModelError, match="not"):
        read({**full().strings(), "robust0": text}, PATH)


def test_metadata_beyond_reason():
    with pytest.raises(ModelError, match="characters of robust0"):
        read({"robust0": " " * 20_000_001}, PATH)


def test_what_cannot_be_described_is_refused_before_writing():
    with pytest.raises(ModelError, match=r"cannot be described.*class_names\.0"):
        Metadata.of(SPEC, class_names=("a\nb", "c"))
    with pytest.raises(ModelError, match=r"metrics\.clean"):
        Metadata.of(SPEC, metrics={"clean": float("nan")})


def test_metadata_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        full().seed = 4


def test_hostile_arguments_in_a_file_cost_nothing(editor):
    """A network far larger than the file is refused by its shapes, before any memory is taken."""
    strings = editor.header["__metadata__"]
    strings["arch"] = "vit_tiny_patch16_224"
    strings["arch_args"] = json.dumps({"embed_dim": 4080, "depth": 64, "num_classes": 10})
    with pytest.raises(ModelError, match=r"far larger than the \d+ tensors"):
        load_checkpoint(editor.write())


def test_a_network_of_very_many_blocks_is_not_even_outlined(editor, monkeypatch):
    """Each argument is within its bounds; together they would make thousands of modules."""
    made = []
    begin = nn.Conv2d.__init__
    monkeypatch.setattr(nn.Conv2d, "__init__", lambda *a, **k: (made.append(1), begin(*a, **k))[1])
    strings = editor.header["__metadata__"]
    strings["arch"] = "convnext_atto"
    strings["arch_args"] = json.dumps({"depths": [100, 100, 100, 100], "num_classes": 10})
    with pytest.raises(ModelError, match="far larger"):
        load_checkpoint(editor.write())
    assert len(made) < 100


def test_tables_that_no_file_stores_are_bounded(tmp_path):
    """A shifted window of 64 x 64 needs gigabytes of masks, which are not part of the weights."""
    arguments = {
        "img_size": 512, "window_size": 64, "embed_dim": 8, "depths": [2, 2], "num_heads": [1, 1]
    }  # fmt: skip
    spec = NetworkSpec(
        "swin_tiny_patch4_window7_224", 2, (3, 512, 512), (0.0,) * 3, (1.0,) * 3, arguments
    )
    tensors = {
        name: torch.zeros(value.shape, dtype=value.dtype)
        for name, value in skeleton(spec).state_dict().items()
    }
    path = tmp_path / "small.safetensors"
    save_file(tensors, path, metadata=Metadata.of(spec, class_names=("a", "b")).strings())
    assert path.stat().st_size < 1_000_000
    with pytest.raises(ModelError, match=r"asks for a network of [\d,]+ numbers"):
        load_checkpoint(path)
