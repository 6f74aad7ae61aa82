import io
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.data import arrays
from robust0.data.datasets import open_dataset
from robust0.errors import DataError

IMAGES = np.arange(6 * 4 * 5 * 3, dtype=np.uint8).reshape(6, 4, 5, 3)
LABELS = np.array([0, 1, 2, 0, 1, 2])


@pytest.fixture
def write(tmp_path):
    def write(**parts):
        np.savez_compressed(tmp_path / "my data.npz", **parts)
        return f"npz:{tmp_path / 'my data.npz'}"

    return write


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_images_and_labels_come_as_they_are(write, dtype):
    data = open_dataset(write(images=IMAGES, labels=LABELS.astype(dtype)), "test")
    assert data.image_shape == (3, 4, 5)
    assert data.split == "all"
    assert data.class_names == ("0", "1", "2")
    assert data.ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.labels.tolist() == LABELS.tolist()
    assert np.array_equal(data.pixels(data.ids).permute(0, 2, 3, 1).numpy(), IMAGES)


def test_grey_images_have_one_channel(write):
    for images in (IMAGES[..., 0], IMAGES[..., :1]):
        data = open_dataset(write(images=images, labels=LABELS), "test")
        assert data.image_shape == (1, 4, 5)
        assert np.array_equal(data.pixels(data.ids)[:, 0].numpy(), IMAGES[..., 0])


def test_a_divided_file_keeps_its_halves_apart_and_shares_its_classes(write):
    name = write(
        train_images=IMAGES,
        train_labels=LABELS,
        test_images=IMAGES[:2],
        test_labels=LABELS[:2],
    )
    train, test = open_dataset(name, "train"), open_dataset(name, "test")
    assert (train.split, len(train), test.split, len(test)) == ("train", 6, "test", 2)
    assert test.class_names == ("0", "1", "2")


def test_class_names_may_be_given(write):
    names = np.array(["a", "b", "c", "never"])
    data = open_dataset(write(images=IMAGES, labels=LABELS, class_names=names), "test")
    assert data.class_names == ("a", "b", "c", "never")


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"images": IMAGES / 255, "labels": LABELS}, "must be uint8, got float64"),
        ({"images": IMAGES.astype(np.int16), "labels": LABELS}, "must be uint8, got int16"),
        ({"images": IMAGES.transpose(0, 3, 1, 2), "labels": LABELS}, r"got \(6, 3, 4, 5\)"),
        ({"images": IMAGES[0, :, :, 0], "labels": LABELS}, r"got \(4, 5\)"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "is empty"),
        ({"images": IMAGES, "labels": LABELS[:5]}, "expected 6 labels"),
        ({"images": IMAGES, "labels": LABELS[:, None]}, "expected 6 labels"),
        ({"images": IMAGES, "labels": LABELS / 1.0}, "must be integers, got float64"),
        ({"images": IMAGES, "labels": LABELS - 1}, r"lie in 0\.\.1, got -1\.\.1"),
        ({"images": IMAGES, "labels": LABELS + 2**40}, r"lie in 0\.\.99999, got"),
        ({"images": IMAGES, "labels": LABELS, "class_names": np.array(["a", "b"])}, r"0\.\.1, got"),
        (
            {"images": IMAGES, "labels": LABELS, "class_names": np.arange(3)},
            "flat array of strings",
        ),
        ({"images": IMAGES}, "expected arrays images and labels"),
        (
            {"train_images": IMAGES, "train_labels": LABELS},
            "test_images and test_labels, got train",
        ),
        ({"images": np.array([object()]), "labels": LABELS}, "Python objects"),
    ],
)
def test_each_fault_has_its_message(write, parts, says):
    with pytest.raises(DataError, match=says) as caught:
        open_dataset(write(**parts), "test")
    assert caught.value.hint


def test_files_that_are_no_npz(tmp_path):
    path = tmp_path / "x.npz"
    with pytest.raises(DataError, match="there is no file"):
        open_dataset(f"npz:{path}", "test")
    for content in (b"", b"<html>", b"PK\x03\x04 cut"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"not a whole \.npz file"):
            open_dataset(f"npz:{path}", "test")
    with pytest.raises(DataError, match="cannot read"):
        open_dataset(f"npz:{tmp_path}", "test")


def member(shape, dtype="|u1", body=b"") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"shape": shape, "fortran_order": False, "descr": dtype}
    )
    return file.getvalue() + body


def test_a_header_that_claims_more_than_it_holds_allocates_nothing(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("images.npy", member((10**12, 32, 32, 3), body=b"123"))
        packed.writestr("labels.npy", member((1,), body=b"1"))
    with pytest.raises(DataError, match="but holds 3 bytes"):
        open_dataset(f"npz:{path}", "test")


def test_a_zip_bomb_is_refused_by_its_size(write, monkeypatch):
    monkeypatch.setattr(arrays, "_MOST_BYTES", 10_000)
    name = write(images=np.zeros((100, 32, 32, 3), np.uint8), labels=np.zeros(100, np.int64))
    with pytest.raises(DataError, match=r"unpacks to 30\d+ bytes, more than the 10000 allowed"):
        open_dataset(name, "test")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_files_are_refused_or_read_but_never_crash(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("npz") / "x.npz"
    np.savez_compressed(path, images=IMAGES, labels=LABELS)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    try:
        opened = open_dataset(f"npz:{path}", "test")
    except DataError:
        return
    assert len(opened) == 6


def test_another_size_is_refused(write):
    with pytest.raises(DataError, match="not of 32"):
        open_dataset(write(images=IMAGES, labels=LABELS), "test", image_size=32)
