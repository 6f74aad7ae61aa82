"""How many images share a model call when nobody says."""

import pytest
import torch

from robust0.commands.build_audit import _rows
from robust0.data.imageset import DataOrigin, TensorSet

CPU = torch.device("cpu")


def images(count, side):
    origin = DataOrigin("toy", "test", ("a", "b"), "memory")
    pixels = torch.zeros(1, 3, side, side, dtype=torch.uint8).expand(count, -1, -1, -1)
    return TensorSet(origin, pixels, torch.zeros(count, dtype=torch.int64))


@pytest.mark.parametrize(
    ("count", "side", "device", "rows"),
    [
        (1, 32, "cpu", 16),
        (50, 32, "cpu", 16),
        (71, 32, "cpu", 16),
        (72, 32, "cpu", 24),
        (143, 32, "cpu", 24),
        (144, 32, "cpu", 48),
        (10_000, 32, "cpu", 48),
        (10_000, 224, "cpu", 16),
        (1000, 32, "cuda", 256),
        (10_000, 32, "cuda", 512),
        (10_000, 224, "cuda", 128),
    ],
)
def test_calls_are_no_larger_than_what_will_fill_them(count, side, device, rows):
    assert _rows(None, images(count, side), torch.device(device)) == rows


def test_what_was_asked_for_is_done():
    assert _rows(48, images(10, 32), CPU) == 48


def test_votes_are_asked_for_in_small_calls():
    assert _rows(None, images(1000, 32), CPU, votes=True) == 4
    assert _rows(8, images(1000, 32), CPU, votes=True) == 8
