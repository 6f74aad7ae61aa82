import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.certificates.partition import RandomPartition, StridedPartition, WalkingPartition, hide
from robust0.errors import RecipeError
from robust0.models.classifiers import PartitionVoteNotes
from robust0.proofs import CertifySettings


@st.composite
def partitions(draw, kind):
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    if kind == "strided":
        stride = draw(st.integers(1, min(height, width)))
        return StridedPartition(height=height, width=width, stride=stride)
    views = draw(st.integers(1, height * width))
    if kind == "walking":
        return WalkingPartition(height=height, width=width, views=views)
    return RandomPartition(height=height, width=width, views=views, seed=draw(st.integers(0, 99)))


@pytest.mark.parametrize("kind", ["strided", "walking", "random"])
@settings(max_examples=40)
@given(st.data(), st.integers(1, 3))
def test_each_pixel_changes_its_own_view_and_no_other(kind, data, channels):
    partition = data.draw(partitions(kind))
    pixels = partition.height * partition.width
    clean = torch.rand(1, channels, pixels).expand(pixels, -1, -1).clone()
    changed = clean.clone()
    rows = torch.arange(pixels)
    changed[rows, rows % channels, rows] += 1  # image i differs in pixel i, in one channel
    shape = (pixels, channels, partition.height, partition.width)
    before, after = partition.split(clean.reshape(shape)), partition.split(changed.reshape(shape))
    differs = (before != after).flatten(2).any(dim=2)
    owner = partition.owner()
    assert owner.dtype == torch.int64
    assert owner.shape == (pixels,)
    assert torch.equal(differs, owner[:, None] == torch.arange(partition.views))
    assert before.shape[:3] == (pixels, partition.views, channels + 1)


@pytest.mark.parametrize("kind", ["strided", "walking", "random"])
@settings(max_examples=40)
@given(st.data())
def test_presence_marks_as_many_pixels_as_a_view_owns_and_all_colours_are_kept(kind, data):
    partition = data.draw(partitions(kind))
    image = torch.rand(1, 1, partition.height, partition.width) + 1
    views = partition.split(image)
    assert torch.equal(
        views[0, :, 1].flatten(1).sum(dim=1).long(),
        partition.owner().bincount(minlength=partition.views),
    )
    shown = views[0, :, 0][views[0, :, 1] == 1]
    assert torch.equal(shown.sort().values, image.flatten().sort().values)
    assert not views[0, :, 0][views[0, :, 1] == 0].any()


def test_a_strided_view_is_the_strided_slice():
    images = torch.rand(2, 3, 7, 8)
    partition = StridedPartition(height=7, width=8, stride=3)
    views, owner = partition.split(images), partition.owner().reshape(7, 8)
    assert views.shape == (2, 9, 4, 3, 3)
    for a in range(3):
        for b in range(3):
            slice_ = images[:, :, a::3, b::3]
            rows, columns = slice_.shape[2:]
            view = views[:, a * 3 + b]
            assert torch.equal(view[:, :3, :rows, :columns], slice_)
            assert view[:, 3].sum() == 2 * rows * columns
            assert view[:, 3, :rows, :columns].all()
            assert (owner[a::3, b::3] == a * 3 + b).all()


def test_a_hidden_pixel_leaves_no_trace():
    visible = torch.tensor([[[True, False, False]]])
    strange = torch.tensor([[[0.5, torch.nan, -0.0]]])
    shown = hide(strange, visible)
    assert shown.tolist() == [[[0.5, 0.0, 0.0]], [[1.0, 0.0, 0.0]]]
    assert not torch.signbit(shown).any()


def test_the_seed_decides_a_random_partition():
    def owner(seed):
        return RandomPartition(height=6, width=6, views=5, seed=seed).owner()

    assert torch.equal(owner(1), owner(1))
    assert not torch.equal(owner(1), owner(2))


@pytest.mark.parametrize(
    "build",
    [
        lambda: StridedPartition(height=4, width=3, stride=4),
        lambda: StridedPartition(height=4, width=3, stride=0),
        lambda: WalkingPartition(height=2, width=2, views=5),
        lambda: RandomPartition(height=2, width=2, views=0),
        lambda: WalkingPartition(height=2, width=2, views=2).split(torch.zeros(1, 1, 2, 3)),
        lambda: StridedPartition(height=2, width=2, stride=2).split(torch.zeros(1, 1, 2, 3)),
    ],
)
def test_what_makes_no_sense_is_refused(build):
    with pytest.raises(RecipeError):
        build()


def test_certificates_name_a_partition_by_its_kind():
    """As checkpoints do; those of older versions, which named the class, are read as the same."""
    assert PartitionVoteNotes(stride=4).split(8, 8).kind == "strided"
    assert PartitionVoteNotes(partition="walking", views=4).split(8, 8).kind == "walking"
    assert PartitionVoteNotes(partition="random", views=4).split(8, 8).kind == "random"
    path = Path(__file__).parents[2] / "model_zoo/cifar10-votes25-e120.radii.json"
    stored = json.loads(path.read_text())["settings"]
    stored["details"]["partition"] = "StridedPartition"
    assert CertifySettings.model_validate(stored).details["partition"] == "strided"
