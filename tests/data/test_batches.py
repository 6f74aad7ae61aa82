import numpy as np
import pytest
import torch
from PIL import Image

from robust0.data.augment import ResizedCrop, Shift
from robust0.data.batches import eval_batches, train_batches
from robust0.data.folder import open_folder
from robust0.data.imageset import DataOrigin, TensorSet
from robust0.errors import DataError
from robust0.rng import Stream

STREAM = Stream.of("test", 0)
# Newer Pythons warn about forking a process that has threads; torch's loader does so by design.
forks = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def toy(count=10):
    draws = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8, generator=draws)
    origin = DataOrigin("toy", "train", ("a", "b"), "memory")
    return TensorSet(origin, pixels, torch.arange(count) % 2, torch.arange(count) + 100)


@pytest.fixture
def files(tmp_path):
    for number in range(7):
        pixels = np.random.default_rng(number).integers(0, 256, (70, 80 + number, 3), np.uint8)
        path = tmp_path / "root" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return open_folder("folder:x", tmp_path / "root", "train", image_size=32)


def views(data, order, size, epoch=0, workers=0, **settings):
    batches = train_batches(
        data,
        order,
        size,
        epoch=epoch,
        stream=STREAM,
        augment=ResizedCrop(**settings) if "scale" in settings else Shift(**settings),
        workers=workers,
    )
    return {
        int(i): image for batch in batches for i, image in zip(batch.ids, batch.images, strict=True)
    }


@pytest.mark.parametrize("kind", ["tensor", "files"])
def test_batches_follow_the_order_and_the_last_may_be_short(kind, files):
    data = toy() if kind == "tensor" else files
    order = torch.tensor([5, 3, 1, 0, 2])
    training = train_batches(data, order, 2, epoch=0, stream=STREAM, augment=Shift(), workers=0)
    for batches in (list(training), list(eval_batches(data, 2, order, workers=0))):
        assert [len(batch.images) for batch in batches] == [2, 2, 1]
        assert torch.equal(torch.cat([batch.ids for batch in batches]), data.ids[order])
        assert torch.equal(torch.cat([batch.labels for batch in batches]), data.labels[order])
        for batch in batches:
            assert batch.images.dtype == torch.float32
            assert batch.images.shape[1:] == data.image_shape
            assert 0 <= batch.images.min() <= batch.images.max() <= 1


@pytest.mark.parametrize("kind", ["tensor", "files"])
def test_evaluation_sees_the_plain_images(kind, files):
    data = toy() if kind == "tensor" else files
    seen = torch.cat([batch.images for batch in eval_batches(data, 3, workers=0)])
    assert torch.equal(seen, data.images(torch.arange(len(data))))


@pytest.mark.parametrize("kind", ["tensor", "files"])
def test_views_do_not_depend_on_batch_or_order(kind, files):
    data = toy() if kind == "tensor" else files
    whole = views(data, torch.arange(len(data)), len(data))
    other = views(data, torch.arange(len(data)).flip(0), 2)
    assert whole.keys() == other.keys()
    assert all(torch.equal(whole[i], other[i]) for i in whole)
    later = views(data, torch.arange(len(data)), len(data), epoch=1)
    assert not all(torch.equal(whole[i], later[i]) for i in whole)


def test_no_augmentation_is_the_identity_in_memory():
    data = toy()
    seen = views(data, torch.arange(10), 4, pad=0, flip=False)
    assert torch.equal(torch.stack(list(seen.values())), data.images(torch.arange(10)))


def test_flips_of_files_mirror_the_same_box(files):
    plain = views(files, torch.arange(7), 7, flip=False)
    mirrored = views(files, torch.arange(7), 7, flip=True)
    same = [torch.equal(plain[i], mirrored[i]) for i in plain]
    turned = [torch.equal(plain[i].flip(2), mirrored[i]) for i in plain]
    assert all(a or b for a, b in zip(same, turned, strict=True))
    assert any(turned)


@forks
def test_worker_processes_change_nothing(files):
    before = torch.random.get_rng_state()
    alone = views(files, torch.arange(7), 2)
    helped = views(files, torch.arange(7), 2, workers=2)
    assert all(torch.equal(alone[i], helped[i]) for i in alone)
    assert torch.equal(before, torch.random.get_rng_state())


@forks
@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_file_is_named_in_two_lines(files, workers):
    victim = files.path(2)
    victim.write_bytes(victim.read_bytes()[:500])
    with pytest.raises(DataError, match=victim.name) as caught:
        list(eval_batches(files, 2, workers=workers))
    assert "\n" not in caught.value.message
    assert caught.value.hint == "repair or remove the file"


def test_an_empty_order_gives_no_batches(files):
    for data in (toy(), files):
        assert list(eval_batches(data, 2, torch.tensor([], dtype=torch.int64))) == []


@pytest.mark.parametrize("kind", ["tensor", "files"])
def test_the_kind_of_augmentation_does_not_depend_on_where_images_lie(kind, files):
    data = toy() if kind == "tensor" else files
    order = torch.arange(len(data))
    plain = data.images(order)
    same = views(data, order, 4, pad=0, flip=False)
    assert torch.equal(torch.stack([same[int(i)] for i in data.ids]), plain)
    shifted = views(data, order, 4, pad=2, flip=False)
    inner = [shifted[int(i)] for i in data.ids]
    for image, view in zip(plain, inner, strict=True):
        padded = torch.nn.functional.pad(image, (2, 2, 2, 2))
        side = image.shape[1]
        crops = [padded[:, y : y + side, x : x + side] for y in range(5) for x in range(5)]
        assert any(torch.allclose(view, crop) for crop in crops)
    boxes = views(data, order, 4, scale=0.25, flip=False)
    assert all(boxes[int(i)].shape == plain[0].shape for i in data.ids)
    assert not all(
        torch.allclose(boxes[int(i)], image, atol=1e-3)
        for i, image in zip(data.ids, plain, strict=True)
    )
