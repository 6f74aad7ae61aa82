import shutil

import pytest
import torch

from robust0.data import embedded
from robust0.data.catalogue import DATASETS
from robust0.data.datasets import open_dataset
from robust0.errors import DataError


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_sample_needs_nothing_but_the_package(split, monkeypatch):
    monkeypatch.setenv("ROBUST0_OFFLINE", "1")
    data = open_dataset("sample", split)
    assert len(data) == 1000
    assert data.image_shape == (3, 32, 32)
    assert data.ids.tolist() == list(range(1000))
    assert data.class_names == DATASETS["cifar10"].class_names
    assert data.labels.bincount().min() > 80
    assert data.checksums() == embedded.DIGESTS[split]


def test_known_labels_stand_at_their_places():
    # The first CIFAR-10 test images: cat, ship, ship, airplane; the first training image: frog.
    assert open_dataset("sample", "test").labels[:4].tolist() == [3, 8, 8, 0]
    assert open_dataset("sample", "train").labels[:2].tolist() == [6, 9]


def test_its_fingerprint_is_that_of_the_head_of_cifar10(monkeypatch):
    sample = open_dataset("sample", "test")
    monkeypatch.delenv("ROBUST0_CACHE")
    try:
        whole = open_dataset("cifar10", "test", fetch_missing=False)
    except DataError:
        pytest.skip("cifar10 is not in this machine's cache")
    assert whole.subset(torch.arange(1000)).fingerprint == sample.fingerprint


@pytest.mark.parametrize("damage", ["gone", "cut", "other", "labels"])
def test_a_damaged_sample_is_refused(tmp_path, damage):
    place = tmp_path / "sample"
    shutil.copytree(embedded.folder(), place)
    sheet = place / "test.png"
    if damage == "gone":
        sheet.unlink()
    elif damage == "cut":
        sheet.write_bytes(sheet.read_bytes()[:100_000])
    elif damage == "other":
        shutil.copy(place / "train.png", sheet)
    else:
        (place / "labels.json").write_text('{"test": [1, 2]}')
    with pytest.raises(DataError) as caught:
        embedded.read("test", place)
    assert "reinstall" in caught.value.hint


def test_it_stays_small():
    assert sum(path.stat().st_size for path in embedded.folder().iterdir()) < 5_000_000
