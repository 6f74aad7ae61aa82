import subprocess
import sys

import pytest

from robust0.data.catalogue import DATASETS
from robust0.data.datasets import open_dataset, parse_name, pull_data
from robust0.errors import DataError


def test_the_table_agrees_with_itself():
    assert list(DATASETS) == ["cifar10", "cifar100", "gtsrb", "imagenet100", "sample"]
    for name, spec in DATASETS.items():
        assert spec.name == name
        assert spec.description
        assert len(spec.class_names) in (0, spec.classes)
        assert len(set(spec.class_names)) == len(spec.class_names)
    assert list(DATASETS["cifar100"].class_names) == sorted(DATASETS["cifar100"].class_names)


def test_the_table_needs_neither_torch_nor_numpy():
    script = (
        "import sys; from robust0.data.datasets import DATASETS, in_cache; in_cache('cifar10');"
        "assert not {'torch', 'numpy', 'PIL'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("cifar", "cifar10"),
        ("CIFAR10", "cifar10"),
        ("mnist", "data list"),
        ("folder", "folder:PATH"),
        ("npz:", "npz:PATH"),
    ],
)
def test_unknown_names_list_the_known_ones(name, near):
    with pytest.raises(DataError, match="known: cifar10, cifar100, gtsrb") as caught:
        open_dataset(name, "test")
    assert near in caught.value.hint


def test_paths_keep_their_colons_and_spaces(tmp_path):
    assert str(parse_name("folder:/a b/c:d")[1]) == "/a b/c:d"
    assert parse_name("sample") == ("sample", None)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("sample", {"variant": "paper"}, "no variant"),
        ("folder:/x", {"variant": "paper"}, "no variant"),
        ("sample", {"class_list": ["cat"]}, "takes no class list"),
        ("npz:/x", {"class_list": ["cat"]}, "takes no class list"),
        ("sample", {"image_size": 64}, "is 32x32, not 64"),
    ],
)
def test_options_that_do_not_apply_are_refused(name, options, says):
    with pytest.raises(DataError, match=says):
        open_dataset(name, "test", **options)


@pytest.mark.parametrize("name", ["imagenet100", "folder:/x", "npz:/x"])
def test_what_cannot_be_fetched_says_so(name):
    with pytest.raises(DataError, match="cannot be fetched"):
        list(pull_data(name))


def test_pulling_the_sample_verifies_it():
    assert list(pull_data("sample")) == []


def test_an_unwritable_cache_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("ROBUST0_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="cannot write"):
        open_dataset("cifar100", "test")
