import csv
import hashlib
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets
from torchvision.transforms.v2 import functional

from robust0.data import gtsrb
from robust0.data.catalogue import DATASETS
from robust0.data.datasets import open_dataset, pull_data
from robust0.errors import DataError


def write(folder, training="GTSRB/Training", train=12, test=5, side=32):
    """A small GTSRB: class k holds k+2 images of differing sizes unless ``side`` is given."""
    draws = np.random.default_rng(0)

    def save(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (side, side) if side else (int(draws.integers(20, 50)), int(draws.integers(20, 50)))
        Image.fromarray(draws.integers(0, 256, (*shape, 3), np.uint8)).save(path)

    for number in range(train):
        save(folder / training / f"{number % 3:05}" / f"00000_{number:05}.ppm")
        (folder / training / f"{number % 3:05}" / "GT.csv").write_text("not an image")
    with (folder / "GT-final_test.csv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Filename", "Width", "ClassId"])
        for number in reversed(range(test)):
            save(folder / "GTSRB" / "Final_Test" / "Images" / f"{number:05}.ppm")
            writer.writerow([f"{number:05}.ppm", 32, number * 10])


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_official_split_is_torchvisions(tmp_path, split):
    write(tmp_path / "gtsrb", side=None)
    data = open_dataset("gtsrb", split, data_dir=tmp_path)
    reference = datasets.GTSRB(tmp_path, split=split, download=False)
    assert len(data) == len(reference)
    for position, (picture, label) in enumerate(reference):
        image = functional.pil_to_tensor(picture)
        small = functional.resize(image, [32, 32], antialias=True)
        assert torch.equal(data.pixels(torch.tensor([position]))[0], small)
        assert int(data.labels[position]) == label
    assert data.class_names == DATASETS["gtsrb"].class_names
    assert len(set(data.class_names)) == 43


def test_images_of_the_right_size_are_not_resampled(tmp_path):
    write(tmp_path / "gtsrb")
    path = sorted((tmp_path / "gtsrb" / "GTSRB" / "Training" / "00000").glob("*.ppm"))[0]
    data = open_dataset("gtsrb", "train", data_dir=tmp_path / "gtsrb")
    assert np.array_equal(
        data.pixels(torch.tensor([0]))[0].permute(1, 2, 0).numpy(), np.asarray(Image.open(path))
    )


def test_a_folder_is_decoded_once_and_again_when_it_changes(tmp_path, cache, monkeypatch):
    write(tmp_path / "gtsrb")
    first = open_dataset("gtsrb", "train", data_dir=tmp_path)
    decoded = gtsrb._decode
    monkeypatch.setattr(gtsrb, "_decode", lambda *_: pytest.fail("decoded again"))
    assert open_dataset("gtsrb", "train", data_dir=tmp_path).fingerprint == first.fingerprint
    monkeypatch.setattr(gtsrb, "_decode", decoded)
    path = tmp_path / "gtsrb" / "GTSRB" / "Training" / "00000" / "00000_00000.ppm"
    Image.new("RGB", (40, 40)).save(path)
    assert open_dataset("gtsrb", "train", data_dir=tmp_path).fingerprint != first.fingerprint


def test_the_papers_split_divides_the_training_archive(tmp_path, monkeypatch):
    monkeypatch.setattr(gtsrb, "_PAPER_TEST_IMAGES", 4)
    write(tmp_path / "gtsrb")
    whole = open_dataset("gtsrb", "train", data_dir=tmp_path)
    train, test = (
        open_dataset("gtsrb", split, data_dir=tmp_path, variant="paper")
        for split in ("train", "test")
    )
    assert (len(train), len(test)) == (8, 4)
    assert sorted(train.ids.tolist() + test.ids.tolist()) == list(range(12))
    assert torch.equal(test.images(torch.arange(4)), whole.images(test.ids))
    again = open_dataset("gtsrb", "test", data_dir=tmp_path, variant="paper")
    assert again.fingerprint == test.fingerprint


def test_only_the_official_test_set_is_stored_at_random(tmp_path, monkeypatch):
    monkeypatch.setattr(gtsrb, "_PAPER_TEST_IMAGES", 4)
    write(tmp_path / "gtsrb")
    for split, variant in (("train", "official"), ("test", "official"), ("test", "paper")):
        data = open_dataset("gtsrb", split, data_dir=tmp_path, variant=variant)
        assert data.origin.shuffled == ((split, variant) == ("test", "official"))


def test_flips_are_for_the_papers_variant_only():
    assert not DATASETS["gtsrb"].flips


def zipped(folder, names, archive):
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and name.startswith(names):
                packed.write(path, name)
    return archive.read_bytes()


def test_pull_fetches_unpacks_and_decodes(tmp_path, httpserver, monkeypatch, cache):
    origin = tmp_path / "origin"
    write(origin, training="GTSRB/Final_Training/Images", side=None)
    parts = {
        "GTSRB_Final_Training_Images.zip": "GTSRB/Final_Training",
        "GTSRB_Final_Test_Images.zip": "GTSRB/Final_Test",
        "GTSRB_Final_Test_GT.zip": "GT-final_test.csv",
    }
    hashes = {}
    for name, start in parts.items():
        content = zipped(origin, start, tmp_path / name)
        httpserver.expect_request(f"/{name}").respond_with_data(content)
        hashes[name] = hashlib.md5(content).hexdigest()
    assert gtsrb._ARCHIVES.keys() == hashes.keys()
    monkeypatch.setattr(gtsrb, "_ARCHIVES", hashes)
    monkeypatch.setattr(gtsrb, "_HOST", httpserver.url_for("").rstrip("/"))
    assert {event.label for event in pull_data("gtsrb")} == set(parts)
    assert list(pull_data("gtsrb")) == []
    assert len(httpserver.log) == 3
    for split, count in (("train", 12), ("test", 5)):
        data = open_dataset("gtsrb", split, fetch_missing=False)
        assert len(data) == count
        copy = open_dataset("gtsrb", split, data_dir=origin)
        assert copy.fingerprint == data.fingerprint
    assert not (cache / "gtsrb" / "unpacked").exists()


def test_an_unreachable_host_points_to_data_dir(monkeypatch):
    monkeypatch.setattr(gtsrb, "_HOST", "http://127.0.0.1:9")
    with pytest.raises(DataError, match="gtsrb cannot be fetched") as caught:
        open_dataset("gtsrb", "test")
    assert "--data-dir" in caught.value.hint


@pytest.mark.parametrize(
    "damage", ["no list", "bad list", "missing image", "class 43", "no images"]
)
def test_incomplete_folders_are_refused(tmp_path, damage):
    write(tmp_path / "gtsrb")
    labels = tmp_path / "gtsrb" / "GT-final_test.csv"
    images = tmp_path / "gtsrb" / "GTSRB" / "Final_Test" / "Images"
    if damage == "no list":
        labels.unlink()
    elif damage == "bad list":
        labels.write_text("a;b\n1;2\n")
    elif damage == "missing image":
        (images / "00002.ppm").unlink()
    elif damage == "class 43":
        labels.write_text("Filename;ClassId\n00001.ppm;43\n")
    else:
        labels.write_text("Filename;ClassId\n")
    with pytest.raises(DataError) as caught:
        open_dataset("gtsrb", "test", data_dir=tmp_path)
    assert caught.value.hint
