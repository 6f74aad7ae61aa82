from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from robust0.data.choice import choose
from robust0.data.datasets import open_dataset
from robust0.data.imageset import DataOrigin, TensorSet


def labelled(labels, *, shuffled=False):
    names = tuple(str(label) for label in range(max(labels) + 1))
    origin = DataOrigin("toy", "test", names, "memory", shuffled)
    pixels = torch.zeros(len(labels), 3, 2, 2, dtype=torch.uint8)
    return TensorSet(origin, pixels, torch.tensor(labels))


@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=6).filter(any),
    wanted=st.integers(1, 40),
)
def test_classes_give_one_image_in_turn(sizes, wanted):
    data = labelled([label for label, size in enumerate(sizes) for _ in range(size)])
    chosen, how = choose(data, wanted)
    held = Counter(chosen.labels.tolist())
    assert len(chosen) == min(wanted, sum(sizes))
    # A class has fewer than another only if it has no more, or by the one of the last turn.
    most = max(held.values())
    assert all(held[label] >= min(size, most - 1) for label, size in enumerate(sizes))
    assert chosen.ids.tolist() == sorted(set(chosen.ids.tolist()))
    assert ("all" in how) == (wanted >= sum(sizes))


def test_a_larger_choice_holds_the_smaller_and_each_is_fixed():
    data = labelled([label for label in range(5) for _ in range(30)])
    small, large = (set(choose(data, count)[0].ids.tolist()) for count in (20, 70))
    assert small < large
    assert small == set(choose(data, 20)[0].ids.tolist())
    assert small != {30 * label + row for label in range(5) for row in range(4)}


def test_a_random_order_keeps_its_first_images():
    data = labelled([0] * 20 + [1] * 20, shuffled=True)
    chosen, how = choose(data, 10)
    assert chosen.ids.tolist() == list(range(10))
    assert "the first 10" in how


def test_thirty_of_four_classes_of_fifteen_show_all_four(tmp_path):
    for label in "abcd":
        for number in range(15):
            path = tmp_path / label / f"{number}.png"
            path.parent.mkdir(exist_ok=True)
            Image.new("RGB", (4, 4), (number, 0, 0)).save(path)
    chosen, how = choose(open_dataset(f"folder:{tmp_path}", "test"), 30)
    assert sorted(Counter(chosen.labels.tolist()).values()) == [7, 7, 8, 8]
    assert "fixed seed" in how


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_sample_is_stored_at_random(split):
    assert open_dataset("sample", split).origin.shuffled
