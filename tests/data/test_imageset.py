import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import v2

from robust0.data.decoding import decode, evaluation_view
from robust0.data.folder import open_folder
from robust0.data.imageset import DataOrigin, TensorSet
from robust0.errors import DataError

ORIGIN = DataOrigin("toy", "test", ("a", "b"), "memory")


def toy(count=6, seed=0, **changes):
    draws = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 3, 4, 5), dtype=torch.uint8, generator=draws)
    return TensorSet(ORIGIN, changes.get("pixels", pixels), torch.arange(count) % 2)


def test_pixels_over_255_hit_both_ends_exactly():
    pixels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    images = TensorSet(ORIGIN, pixels, torch.zeros(1, dtype=torch.int64)).images(torch.tensor([0]))
    assert images.dtype == torch.float32
    assert (images.min(), images.max()) == (0.0, 1.0)
    expected = np.arange(256, dtype=np.float32) / np.float32(255)
    assert np.array_equal(images.flatten().numpy(), expected)
    assert torch.equal((images * 255).round().to(torch.uint8), pixels)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=8))
def test_a_subset_is_the_chosen_rows_under_their_old_ids(positions):
    data, index = toy(), torch.tensor(positions, dtype=torch.int64)
    part = data.subset(index)
    assert part.ids.tolist() == positions
    assert torch.equal(part.images(torch.arange(len(part))), data.images(index))
    assert torch.equal(part.labels, data.labels[index])
    assert (part.fingerprint == data.fingerprint) == (positions == list(range(6)))


def test_a_mask_chooses_too():
    assert toy().subset(torch.tensor([True, False] * 3)).ids.tolist() == [0, 2, 4]


def test_the_fingerprint_sees_pixels_labels_and_ids():
    data = toy()
    other = data.pixels(data.ids).clone()
    other[3, 1, 2, 2] ^= 1
    prints = {
        data.fingerprint,
        TensorSet(ORIGIN, other, data.labels).fingerprint,
        TensorSet(ORIGIN, data.pixels(data.ids), 1 - data.labels).fingerprint,
        TensorSet(ORIGIN, data.pixels(data.ids), data.labels, data.ids + 1).fingerprint,
        TensorSet(ORIGIN, data.pixels(data.ids).view(6, 3, 5, 4), data.labels).fingerprint,
    }
    assert len(prints) == 5
    assert all(len(text) == 64 for text in prints)
    assert toy().fingerprint == data.fingerprint
    assert data.to(torch.device("cpu")).fingerprint == data.fingerprint


def test_labels_outside_the_classes_are_refused():
    with pytest.raises(DataError, match=r"lie in 0\.\.1, got 0\.\.2"):
        TensorSet(ORIGIN, torch.zeros(3, 3, 4, 4, dtype=torch.uint8), torch.arange(3))


@pytest.mark.parametrize(
    "pixels",
    [
        torch.zeros(6, 3, 4, 4),
        torch.zeros(6, 4, 4, dtype=torch.uint8),
        torch.zeros(5, 3, 4, 4, dtype=torch.uint8),
    ],
)
def test_other_tensors_are_refused(pixels):
    with pytest.raises(DataError, match="expected uint8 pixels"):
        toy(pixels=pixels)


def test_checksums_are_of_channels_last_images():
    data = toy()
    other = toy(seed=1)
    assert data.checksums().keys() == {"images", "labels"}
    assert data.checksums()["images"] != other.checksums()["images"]
    assert data.checksums()["labels"] == other.checksums()["labels"]


@pytest.fixture
def files(tmp_path):
    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 256, (70 + number, 90, 3), np.uint8)
        path = tmp_path / "root" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return open_folder("folder:x", tmp_path / "root", "test", image_size=56)


def test_files_are_resized_and_cropped_as_torchvision_does(files):
    reference = v2.Compose([v2.Resize(64, antialias=True), v2.CenterCrop(56)])
    for position in range(4):
        image = decode(files.path(position))
        assert torch.equal(evaluation_view(image, 56), reference(image))
        seen = files.images(torch.tensor([position]))[0]
        assert torch.equal(seen, reference(image).to(torch.float32) / 255)


def test_a_subset_of_files(files):
    part = files.subset(torch.tensor([3, 1]))
    assert part.ids.tolist() == [3, 1]
    assert part.labels.tolist() == [1, 0]  # a/0, a/2, b/1, b/3
    assert torch.equal(part.images(torch.tensor([0])), files.images(torch.tensor([3])))
    assert part.fingerprint != files.fingerprint
    assert part.to(torch.device("cpu")).fingerprint == part.fingerprint
    assert part.checksums() == {}


def test_the_files_fingerprint_sees_names_sizes_and_the_view(files, tmp_path):
    root = tmp_path / "root"
    again = open_folder("other name", root, "test", image_size=56)
    assert again.fingerprint == files.fingerprint
    assert open_folder("x", root, "test", image_size=64).fingerprint != files.fingerprint
    (root / "a" / "0.png").rename(root / "a" / "00.png")
    renamed = open_folder("x", root, "test", image_size=56)
    assert renamed.fingerprint != files.fingerprint
    Image.new("RGB", (90, 70)).save(root / "a" / "00.png")
    assert open_folder("x", root, "test", image_size=56).fingerprint != renamed.fingerprint
