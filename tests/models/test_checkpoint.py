import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import robust0
from robust0.errors import ModelError
from robust0.models import checkpoint
from robust0.models.adapt import adaptation_plan
from robust0.models.build import NetworkSpec, build
from robust0.models.checkpoint import (
    Metadata,
    load_checkpoint,
    load_weights,
    read_metadata,
    save_checkpoint,
)
from robust0.models.normalize import bare

PACKAGES = str(Path(robust0.__file__).parents[1])
MATRIX = [
    "convnext_tiny",
    "swin_tiny_patch4_window7_224",
    "resnet18",
    "resnet34",
    "vit_tiny_patch16_224",
    "preact_resnet18",
]
FULL_WIDTH = pytest.param("preact_resnet18", 224, marks=pytest.mark.slow)  # its stem keeps 224x224


def same(first, second):
    one, two = bare(first).state_dict(), bare(second).state_dict()
    return list(one) == list(two) and all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *((name, 32) for name in MATRIX),
        *((name, 224) for name in MATRIX[:-1]),
        ("preact_resnet18_w16", 224),
        FULL_WIDTH,
    ],
)
def test_networks_build_learn_and_come_back_exactly(name, size, tmp_path):
    found = adaptation_plan(
        name, image_shape=(3, size, size), classes=10, mean=(0.5,) * 3, std=(0.2,) * 3
    )
    model = build(found.spec)
    images, labels = torch.rand(2, 3, size, size), torch.tensor([1, 2])
    before = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    assert any(not torch.equal(before[key], value) for key, value in model.state_dict().items())

    digest = save_checkpoint(tmp_path / "x.safetensors", model, Metadata.of(found.spec))
    loaded = load_checkpoint(tmp_path / "x.safetensors")
    assert loaded.sha256 == digest
    assert loaded.metadata.spec() == found.spec
    assert same(loaded.network, model)
    with torch.no_grad():
        assert torch.equal(loaded.network(images), model.eval()(images))


@pytest.fixture(scope="session")
def thin_model(thin_spec):
    return build(thin_spec, seed=5)


PLAIN = """
import json, sys, warnings
warnings.simplefilter("error")
import timm
from safetensors import safe_open
from safetensors.torch import load_file

for path in sys.argv[1:]:
    if path.endswith("own.safetensors"):
        assert "robust0" not in sys.modules
        import robust0.models
    with safe_open(path, framework="pt") as file:
        notes = file.metadata()
    network = timm.create_model(notes["arch"], **json.loads(notes["arch_args"]))
    network.load_state_dict(load_file(path), strict=True)
    print(float(sum(value.double().sum() for value in network.state_dict().values())))
"""


def test_plain_timm_rebuilds_networks(tmp_path):
    """The snippet of the module's docstring, in a process of its own; robust0 for its own only."""
    totals, paths = [], []
    for name, file in (("vit_tiny_patch16_224", "timms"), ("preact_resnet18_w8", "own")):
        found = adaptation_plan(name, image_shape=(1, 32, 32), classes=7)
        model = build(found.spec)
        paths.append(str(tmp_path / f"{file}.safetensors"))
        save_checkpoint(paths[-1], model, Metadata.of(found.spec))
        totals.append(float(sum(v.double().sum() for v in bare(model).state_dict().values())))
    environment = {**os.environ, "PYTHONPATH": PACKAGES, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PLAIN, *paths]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [float(line) for line in done.stdout.split()] == totals


def test_the_docstring_has_that_snippet():
    wanted = [line.strip() for line in PLAIN.splitlines() if line.startswith("    network")]
    assert len(wanted) == 2
    assert all(line in (checkpoint.__doc__ or "") for line in wanted)


def test_equal_contents_give_equal_bytes(thin_model, thin_spec, tmp_path):
    first = save_checkpoint(tmp_path / "a.safetensors", thin_model, Metadata.of(thin_spec))
    second = save_checkpoint(tmp_path / "b.safetensors", thin_model, Metadata.of(thin_spec))
    data = (tmp_path / "a.safetensors").read_bytes()
    assert first == second == hashlib.sha256(data).hexdigest()
    assert data == (tmp_path / "b.safetensors").read_bytes()
    assert int.from_bytes(data[:8], "little") % 8 == 0


def test_a_loaded_network_is_ready_to_answer(thin_path):
    loaded = load_checkpoint(str(thin_path), device="cpu")
    assert not any(module.training for module in loaded.network.modules())
    assert loaded.network.normalizes
    assert read_metadata(thin_path) == loaded.metadata


def test_wrapped_networks_are_saved_bare(thin_model, thin_spec, tmp_path):
    path = tmp_path / "x.safetensors"
    save_checkpoint(path, nn.DataParallel(thin_model), Metadata.of(thin_spec))
    assert same(load_checkpoint(path).network, thin_model)


def test_other_memory_formats_do_not_matter(thin_spec, tmp_path):
    model = build(thin_spec).to(memory_format=torch.channels_last)
    save_checkpoint(tmp_path / "x.safetensors", model, Metadata.of(thin_spec))
    assert same(load_checkpoint(tmp_path / "x.safetensors").network, model)


def test_tied_weights_are_written_twice(tmp_path):
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    network[1].weight = network[0].weight
    facts = {"classes": 4, "input_size": (1, 2, 2), "mean": (0,), "std": (1,)}
    save_checkpoint(tmp_path / "x.safetensors", network, Metadata.made(factory="m:f", **facts))
    other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    loaded = load_weights(other, tmp_path / "x.safetensors")
    assert same(other, network)
    assert loaded.metadata is not None
    assert loaded.metadata.factory == "m:f"


def test_a_factorys_checkpoint_does_not_import_it(tmp_path):
    facts = {"classes": 4, "input_size": (1, 2, 2), "mean": (0,), "std": (1,)}
    metadata = Metadata.made(factory="no_such_module:make", **facts)
    save_checkpoint(tmp_path / "x.safetensors", nn.Linear(4, 4), metadata)
    with pytest.raises(ModelError, match="no_such_module:make") as refusal:
        load_checkpoint(tmp_path / "x.safetensors")
    assert "--factory" in refusal.value.hint


def test_weights_from_elsewhere(thin_model, thin_spec, editor):
    editor.header["__metadata__"] = {"format": "pt"}
    model = build(thin_spec, seed=9)
    loaded = load_weights(model, editor.write())
    assert loaded.metadata is None
    assert loaded.sha256 == hashlib.sha256(editor.path.read_bytes()).hexdigest()
    assert not same(model, build(thin_spec, seed=9))


# --- what is refused ---------------------------------------------------------------------------


def test_a_missing_tensor(editor):
    del editor.header["bn.bias"]
    offset = 0
    for entry in list(editor.header.values())[1:]:  # close the hole
        size = entry["data_offsets"][1] - entry["data_offsets"][0]
        entry["data_offsets"] = [offset, offset + size]
        offset += size
    editor.buffer = editor.buffer[:offset]
    with pytest.raises(ModelError, match=r"lacks 1 tensors, first 'bn\.bias'"):
        load_checkpoint(editor.write())


def test_an_extra_tensor(editor):
    end = len(editor.buffer)
    editor.header["ema.weight"] = {"dtype": "U8", "shape": [4], "data_offsets": [end, end + 4]}
    editor.buffer += bytes(4)
    with pytest.raises(ModelError, match=r"1 tensors too many, first 'ema\.weight'"):
        load_checkpoint(editor.write())


def test_a_wrong_shape(editor):
    editor.header["conv1.weight"]["shape"] = [8, 27]
    with pytest.raises(
        ModelError, match=r"'conv1\.weight' in shape \(8, 27\), expected \(8, 3, 3, 3\)"
    ):
        load_checkpoint(editor.write())


@pytest.mark.parametrize(("dtype", "code"), [(torch.float16, "F16"), (torch.int32, "I32")])
def test_a_wrong_dtype(dtype, code, thin_model, thin_spec, tmp_path):
    tensors = {name: value.to(dtype) for name, value in bare(thin_model).state_dict().items()}
    save_file(tensors, tmp_path / "x.safetensors", Metadata.of(thin_spec).strings())
    with pytest.raises(ModelError, match=rf"'conv1\.weight' as {code}, expected F32"):
        load_checkpoint(tmp_path / "x.safetensors")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_numbers(value, editor, thin_spec, tmp_path):
    begin, _ = editor.header["bn.weight"]["data_offsets"]
    spoilt = torch.tensor(value).numpy().tobytes()
    editor.buffer = editor.buffer[:begin] + spoilt + editor.buffer[begin + 4 :]
    with pytest.raises(ModelError, match=r"NaN or Inf in 'bn\.weight'"):
        load_checkpoint(editor.write())

    model = build(thin_spec)
    with torch.no_grad():
        model.network.bn.weight[0] = value
    with pytest.raises(ModelError, match=r"the network has NaN or Inf in 'bn\.weight'") as refusal:
        save_checkpoint(tmp_path / "new.safetensors", model, Metadata.of(thin_spec))
    assert "diverged" in refusal.value.hint
    assert not (tmp_path / "new.safetensors").exists()


def test_a_running_statistic_that_is_not_a_number(thin_spec, tmp_path):
    model = build(thin_spec)
    model.network.bn.running_var[3] = float("nan")
    with pytest.raises(ModelError, match=r"bn\.running_var"):
        save_checkpoint(tmp_path / "x.safetensors", model, Metadata.of(thin_spec))


def test_the_weights_of_another_network(thin_model, tmp_path):
    other = NetworkSpec("preact_resnet18_w16", 10, (3, 32, 32), (0.0,) * 3, (1.0,) * 3)
    with pytest.raises(ModelError, match=r"a network other than preact_resnet18_w16.*conv1"):
        save_checkpoint(tmp_path / "x.safetensors", thin_model, Metadata.of(other))


def test_state_that_is_not_tensors(tmp_path):
    class Counting(nn.Linear):
        def get_extra_state(self):
            return {"calls": 3}

    facts = {"classes": 2, "input_size": (1, 2, 2), "mean": (0,), "std": (1,)}
    with pytest.raises(ModelError, match="'_extra_state' as a dict"):
        save_checkpoint(
            tmp_path / "x.safetensors", Counting(2, 2), Metadata.made(factory="m:f", **facts)
        )


# --- writing -----------------------------------------------------------------------------------


def test_folders_are_made_and_odd_names_are_fine(thin_model, thin_spec, tmp_path):
    path = tmp_path / "a b" / "ünï [1].safetensors"
    save_checkpoint(path, thin_model, Metadata.of(thin_spec))
    assert same(load_checkpoint(path).network, thin_model)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_target_is_a_directory(thin_model, thin_spec, tmp_path):
    (tmp_path / "x.safetensors").mkdir()
    with pytest.raises(ModelError, match="cannot write") as refusal:
        save_checkpoint(tmp_path / "x.safetensors", thin_model, Metadata.of(thin_spec))
    assert "not a directory" in refusal.value.hint
    assert len(list(tmp_path.iterdir())) == 1


def test_the_folder_is_a_file(thin_model, thin_spec, thin_path):
    with pytest.raises(ModelError, match="cannot write"):
        save_checkpoint(thin_path / "x.safetensors", thin_model, Metadata.of(thin_spec))


def test_a_folder_that_may_not_be_written(thin_model, thin_spec, tmp_path, unprivileged):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    metadata = Metadata.of(thin_spec)
    save_checkpoint(
        tmp_path / "x.safetensors", thin_model, metadata
    )  # imports, while they can be read
    with unprivileged(), pytest.raises(ModelError, match="Permission denied") as refusal:
        save_checkpoint(folder / "x.safetensors", thin_model, metadata)
    assert "folder you may write to" in refusal.value.hint


def test_a_write_that_fails_half_way_leaves_the_old_file(thin_path, thin_model, thin_spec):
    resource = pytest.importorskip("resource")
    before = thin_path.read_bytes()
    metadata = Metadata.of(thin_spec)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(ModelError, match=r"cannot write .*: File too large"):
            save_checkpoint(thin_path, thin_model, metadata)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert thin_path.read_bytes() == before
    assert list(thin_path.parent.iterdir()) == [thin_path]


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "free some space"), (errno.EIO, "check")]
)
def test_a_disk_that_fails_at_the_sync(code, words, thin_path, thin_spec, thin_model, monkeypatch):
    def fail(handle):
        raise OSError(code, os.strerror(code))

    before = thin_path.read_bytes()
    monkeypatch.setattr(os, "fsync", fail)  # a full disk cannot be had in a test
    with pytest.raises(ModelError, match=os.strerror(code)) as refusal:
        save_checkpoint(thin_path, thin_model, Metadata.of(thin_spec))
    assert words in refusal.value.hint
    assert thin_path.read_bytes() == before
    assert list(thin_path.parent.iterdir()) == [thin_path]


def test_leftovers_of_killed_writers_are_removed(thin_path, thin_model, thin_spec):
    stale = thin_path.with_name(f".{thin_path.name}.99999.tmp")
    fresh = thin_path.with_name(f".{thin_path.name}.99998.tmp")
    other = thin_path.with_name(".another.safetensors.99999.tmp")
    for leftover in (stale, fresh, other):
        leftover.write_bytes(b"half")
    for leftover in (stale, other):
        os.utime(leftover, (0, 0))
    save_checkpoint(thin_path, thin_model, Metadata.of(thin_spec))
    assert not stale.exists()
    assert fresh.exists()  # may have a living writer
    assert other.exists()  # not ours


def test_the_file_has_ordinary_permissions(thin_model, thin_spec, tmp_path):
    save_checkpoint(tmp_path / "x.safetensors", thin_model, Metadata.of(thin_spec))
    (tmp_path / "plain").touch()
    assert (tmp_path / "x.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode
