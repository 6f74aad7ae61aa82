import numpy as np
import pytest
import torch
from PIL import Image

from robust0.data.datasets import open_dataset
from robust0.data.decoding import require_readable
from robust0.data.imageset import FileSet, TensorSet
from robust0.errors import DataError


def picture(path, size=(20, 20), seed=0, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng(seed)
    pixels = draws.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)
    return pixels


@pytest.fixture
def root(tmp_path):
    return tmp_path / "my images é"


def test_small_images_of_one_size_become_a_tensor(root):
    cat = picture(root / "cat" / "2.png", seed=1)
    dog = picture(root / "dog" / "deeper" / "1.png", seed=2)
    picture(root / "cat" / "10.png", seed=3)
    data = open_dataset(f"folder:{root}", "test")
    assert isinstance(data, TensorSet)
    assert data.class_names == ("cat", "dog")
    assert data.labels.tolist() == [0, 0, 1]  # cat/10.png, cat/2.png, dog/deeper/1.png
    assert data.ids.tolist() == [0, 1, 2]
    assert data.split == "all"
    assert np.array_equal(data.pixels(torch.tensor([1]))[0].permute(1, 2, 0).numpy(), cat)
    assert np.array_equal(data.pixels(torch.tensor([2]))[0].permute(1, 2, 0).numpy(), dog)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1"])
def test_other_colour_modes_become_three_channels(root, mode):
    picture(root / "a" / "1.png", mode=mode)
    assert open_dataset(f"folder:{root}", "test").image_shape == (3, 20, 20)


@pytest.mark.parametrize("sizes", [[(20, 20), (20, 21)], [(65, 65)], [(64, 64), (300, 200)]])
def test_other_images_stay_files_at_224(root, sizes):
    for number, size in enumerate(sizes):
        picture(root / "a" / f"{number}.png", size)
    data = open_dataset(f"folder:{root}", "test")
    assert isinstance(data, FileSet)
    assert data.image_shape == (3, 224, 224)
    images = data.images(data.ids)
    assert images.shape == (len(sizes), 3, 224, 224)
    assert images.dtype == torch.float32
    assert 0 <= images.min() < images.max() <= 1


def test_the_image_size_can_be_chosen(root):
    picture(root / "a" / "1.png", (20, 20))
    assert isinstance(open_dataset(f"folder:{root}", "test", image_size=20), TensorSet)
    data = open_dataset(f"folder:{root}", "test", image_size=48)
    assert isinstance(data, FileSet)
    assert data.images(data.ids).shape == (1, 3, 48, 48)


@pytest.mark.parametrize("second", ["test", "val"])
def test_a_divided_root(root, second):
    picture(root / "train" / "a" / "1.png")
    picture(root / "train" / "b" / "1.png")
    picture(root / second / "a" / "1.png")
    picture(root / second / "b" / "1.png")
    picture(root / second / "b" / "2.png")
    train, test = (open_dataset(f"folder:{root}", split) for split in ("train", "test"))
    assert (train.split, len(train), test.split, len(test)) == ("train", 2, "test", 3)
    assert test.source.endswith(second)


def test_a_class_called_train_is_a_class(root):
    picture(root / "train" / "1.png")
    picture(root / "plane" / "1.png")
    assert open_dataset(f"folder:{root}", "test").class_names == ("plane", "train")


def test_a_missing_half_is_told(root):
    picture(root / "train" / "a" / "1.png")
    with pytest.raises(DataError, match="no test or val folder, only train"):
        open_dataset(f"folder:{root}", "test")


def test_clutter_of_file_managers_is_ignored(root):
    picture(root / "a" / "1.png")
    (root / "a" / ".DS_Store").write_bytes(b"x")
    (root / "a" / "Thumbs.db").write_bytes(b"x")
    (root / ".git").mkdir()
    (root / "README.txt").write_text("about")
    assert len(open_dataset(f"folder:{root}", "test")) == 1


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("notes.txt", b"hello", "notes.txt is not an image"),
        ("empty.png", b"", "empty.png is not an image"),
        ("page.png", b"<html>not found</html>", "cannot read the image .*page.png"),
        ("pointer.jpg", b"version https://git-lfs.github.com/spec/v1", "cannot read .*pointer.jpg"),
    ],
)
def test_files_that_are_no_images_are_named(root, name, content, says):
    picture(root / "a" / "0.png")
    (root / "a" / name).write_bytes(content)
    with pytest.raises(DataError, match=says):
        open_dataset(f"folder:{root}", "test")


def test_a_truncated_image_is_named_when_it_is_decoded(root):
    picture(root / "a" / "0.png", (300, 300))
    victim = root / "a" / "0.png"
    victim.write_bytes(victim.read_bytes()[:2000])
    data = open_dataset(f"folder:{root}", "test")
    with pytest.raises(DataError, match=r"0\.png"):
        data.images(data.ids)


def test_a_link_to_itself_is_named(root):
    picture(root / "a" / "0.png")
    (root / "a" / "loop.png").symlink_to(root / "a" / "loop.png")
    with pytest.raises(DataError, match=r"loop\.png"):
        open_dataset(f"folder:{root}", "test")


@pytest.mark.parametrize("kind", ["missing", "a file", "no classes", "no images"])
def test_roots_that_hold_nothing(root, kind):
    if kind == "a file":
        root.write_bytes(b"")
    elif kind == "no classes":
        picture(root / "1.png")
    elif kind == "no images":
        (root / "a").mkdir(parents=True)
    with pytest.raises(DataError) as caught:
        open_dataset(f"folder:{root}", "test")
    assert caught.value.hint


def test_a_class_list_chooses_and_orders(root):
    for name in ("a", "b", "c"):
        picture(root / name / "1.png")
    data = open_dataset(f"folder:{root}", "test", class_list=["c", "a"])
    assert data.class_names == ("c", "a")
    assert data.labels.tolist() == [1, 0]  # files in path order: a/1.png, c/1.png
    with pytest.raises(DataError, match="1 missing: z"):
        open_dataset(f"folder:{root}", "test", class_list=["a", "z"])
    with pytest.raises(DataError, match="occurs twice"):
        open_dataset(f"folder:{root}", "test", class_list=["a", "a"])


def test_imagenet100_wants_its_hundred_classes(tmp_path):
    with pytest.raises(DataError, match="registered users"):
        open_dataset("imagenet100", "test")
    picture(tmp_path / "val" / "n01" / "1.png", (80, 90))
    with pytest.raises(DataError, match="expected 100 classes"):
        open_dataset("imagenet100", "test", data_dir=tmp_path)
    wnids = [f"n{number:08}" for number in range(100)]
    for wnid in wnids:
        picture(tmp_path / "val" / wnid / "1.png", (80, 90))
    data = open_dataset("imagenet100", "test", data_dir=tmp_path, class_list=wnids[::-1])
    assert data.class_names == tuple(wnids[::-1])
    assert data.labels.tolist() == list(range(99, -1, -1))
    assert data.image_shape == (3, 224, 224)


def test_other_pixels_under_the_same_name_and_size_are_other_images(root):
    path = root / "a" / "1.bmp"
    picture(path, (70, 70), seed=1)
    before = open_dataset(f"folder:{root}", "test")
    content = before.content_fingerprint
    size = path.stat().st_size
    picture(path, (70, 70), seed=2)
    after = open_dataset(f"folder:{root}", "test")
    assert isinstance(after, FileSet)
    assert path.stat().st_size == size
    assert after.fingerprint == before.fingerprint  # of names and sizes alone
    assert after.content_fingerprint != content
    gone = open_dataset(f"folder:{root}", "test")
    path.unlink()
    with pytest.raises(DataError, match="cannot read the image"):
        _ = gone.content_fingerprint


def test_all_unreadable_files_are_named_at_once(root):
    picture(root / "a" / "0.png")
    for name in ("1.png", "2.png"):
        (root / "a" / name).write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match=r"cannot read 2 images: .*1\.png, .*2\.png"):
        open_dataset(f"folder:{root}", "test")
    for name in ("1.txt", "2.txt"):
        (root / "a" / name).write_bytes(b"text")
    with pytest.raises(DataError, match=r"1\.txt, .*2\.txt are not images"):
        open_dataset(f"folder:{root}", "test")


def test_files_cut_off_after_their_header_are_named_at_once(root):
    for name in ("1.bmp", "2.bmp"):
        picture(root / "a" / name, (70, 70))
        (root / "a" / name).write_bytes((root / "a" / name).read_bytes()[:200])
    data = open_dataset(f"folder:{root}", "test")
    assert isinstance(data, FileSet)
    with pytest.raises(DataError, match="cannot read 2 images"):
        require_readable([data.path(0), data.path(1)])


def test_images_of_several_sizes_are_announced(root):
    picture(root / "a" / "0.png", (20, 30))
    picture(root / "a" / "1.png", (70, 90))
    (note,) = open_dataset(f"folder:{root}", "test").origin.notes
    assert note.startswith("images of 2 sizes, from 20x30 to 70x90, are scaled and cropped to 224x")
    assert "dataset.image_size" in note
    (note,) = open_dataset(f"folder:{root}", "test", image_size=48).origin.notes
    assert "cropped to 48x48" in note


def test_images_used_as_they_are_need_no_announcement(root):
    picture(root / "a" / "0.png", (20, 30))
    assert open_dataset(f"folder:{root}", "test").origin.notes == ()
