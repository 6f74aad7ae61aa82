import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torchvision.transforms import v2

from robust0.data.augment import crop_boxes, crop_flip, flips
from robust0.rng import Stream, seeded

STREAM = Stream.of("test", 0)


def pictures(count, seed=0, dtype=torch.uint8):
    draws = torch.Generator().manual_seed(seed)
    return torch.randint(1, 256, (count, 3, 8, 10), dtype=torch.uint8, generator=draws).to(dtype)


def test_every_view_is_a_shifted_and_perhaps_mirrored_original():
    images, ids = pictures(60), torch.arange(60)
    views = crop_flip(images, ids, 3, STREAM, pad=2, flip=True)
    assert views.shape == images.shape
    assert views.dtype == torch.uint8
    padded = functional.pad(images, (2, 2, 2, 2))
    seen = set()
    for row in range(60):
        matches = {
            (top, left, mirrored)
            for top in range(5)
            for left in range(5)
            for mirrored in (False, True)
            if torch.equal(
                views[row],
                (window := padded[row, :, top : top + 8, left : left + 10])
                if not mirrored
                else window.flip(2),
            )
        }
        assert len(matches) == 1
        seen |= matches
    assert {place[0] for place in seen} == {place[1] for place in seen} == set(range(5))
    assert {place[2] for place in seen} == {False, True}


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(12)), st.integers(1, 12), st.integers(0, 2**31), st.booleans())
def test_a_view_depends_on_id_and_epoch_only(order, size, epoch, flip):
    images, ids = pictures(12), torch.arange(12) * 1000
    whole = crop_flip(images, ids, epoch, STREAM, pad=3, flip=flip)
    rows = torch.tensor(order)[:size]
    part = crop_flip(images[rows], ids[rows], epoch, STREAM, pad=3, flip=flip)
    assert torch.equal(part, whole[rows])


def test_epochs_streams_and_ids_differ():
    images, ids = pictures(1).expand(200, -1, -1, -1), torch.arange(200)
    first = crop_flip(images, ids, 0, STREAM, pad=2, flip=True)
    assert not torch.equal(first, crop_flip(images, ids, 1, STREAM, pad=2, flip=True))
    assert not torch.equal(first, crop_flip(images, ids, 0, Stream.of("x"), pad=2, flip=True))
    assert len({view.numpy().tobytes() for view in first}) > 40  # of 50 possible


def test_flips_are_fair_and_can_be_forbidden():
    ids = torch.arange(20_000)
    assert abs(flips(ids, 0, STREAM).double().mean() - 0.5) < 0.02
    images = pictures(12)
    assert torch.equal(crop_flip(images, ids[:12], 0, STREAM, pad=0, flip=False), images)


def test_shifts_are_uniform_and_independent_of_flips():
    ids = torch.arange(9000)
    images = torch.zeros(9000, 1, 3, 3, dtype=torch.uint8)
    images[:, :, 1, 1] = 1
    views = crop_flip(images, ids, 0, STREAM, pad=1, flip=False)
    counts = views.flatten(1).double().sum(dim=0)
    assert counts.sum() == 9000  # the bright pixel never leaves a 3x3 image shifted by one
    assert ((counts - 1000).abs() < 120).all()
    mirrored = flips(ids, 0, STREAM)
    left = views[:, 0, :, 0].bool().any(dim=1)
    assert abs(mirrored[left].double().mean() - 0.5) < 0.04


def test_floats_and_the_global_generator_are_left_alone():
    before = torch.random.get_rng_state()
    views = crop_flip(
        pictures(5, dtype=torch.float32), torch.arange(5), 0, STREAM, pad=1, flip=True
    )
    crop_boxes(torch.tensor([[50, 60]]), torch.tensor([1]), 0, STREAM, 0.1)
    assert views.dtype == torch.float32
    assert torch.equal(before, torch.random.get_rng_state())


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 900), st.integers(1, 900), st.floats(0.01, 1.0), st.integers(0, 10**9))
def test_boxes_lie_inside_the_image(high, wide, min_area, number):
    sizes = torch.tensor([[high, wide]]).expand(20, -1)
    boxes = crop_boxes(sizes, torch.arange(20) + number, 0, STREAM, min_area)
    top, left, height, width = boxes.unbind(dim=1)
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (height >= 1).all()
    assert (width >= 1).all()
    assert (top + height <= high).all()
    assert (left + width <= wide).all()


def test_boxes_are_distributed_as_torchvisions():
    count = 3000
    sizes = torch.tensor([[200, 300]]).expand(count, -1)
    ours = crop_boxes(sizes, torch.arange(count), 0, STREAM, 0.08).double()
    transform = v2.RandomResizedCrop(224)
    image = torch.empty(3, 200, 300, dtype=torch.uint8)
    with seeded("torchvision"):
        draws = [transform.make_params([image]) for _ in range(count)]
    theirs = torch.tensor([[d["top"], d["left"], d["height"], d["width"]] for d in draws]).double()
    spread = theirs.std(dim=0)
    assert ((ours.mean(dim=0) - theirs.mean(dim=0)).abs() < 4 * spread * (2 / count) ** 0.5).all()
    assert ((ours.std(dim=0) / spread - 1).abs() < 0.08).all()


def test_an_impossible_shape_falls_back_to_a_centred_box():
    sizes = torch.tensor([[10, 1000], [1000, 10]])
    boxes = crop_boxes(sizes, torch.arange(2), 0, STREAM, 1.0)
    assert boxes.tolist() == [[0, 493, 10, 13], [493, 0, 13, 10]]
