import re

import numpy as np
import pytest
import torch

from robust0.auditing.given import given_images
from robust0.errors import DataError

CPU = torch.device("cpu")
IMAGES = np.random.default_rng(0).random((4, 3, 5, 6))
LABELS = np.array([0, 1, 2, 1])


@pytest.mark.parametrize("images", [IMAGES, IMAGES.astype(np.float32), torch.from_numpy(IMAGES),
                                    IMAGES.tolist(), IMAGES.astype(np.float16)])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint16])
def test_arrays_of_any_type_become_one_set(images, dtype):
    data = given_images(images, LABELS.astype(dtype), CPU)
    assert (len(data), data.image_shape, data.split) == (4, (3, 5, 6), "given")
    found = data.images(torch.tensor([1, 3]))
    assert found.dtype == torch.float32
    assert torch.allclose(found, torch.tensor(IMAGES[[1, 3]], dtype=torch.float32), atol=1e-3)
    assert data.labels.tolist() == [0, 1, 2, 1]
    assert data.labels.dtype == torch.int64


def test_rounding_is_forgiven_and_clamped():
    images = IMAGES.copy()
    images[0, 0, 0, 0], images[0, 0, 0, 1] = -3e-8, 1 + 5e-7
    found = given_images(images, LABELS, CPU).images(torch.tensor([0]))
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1


def test_the_callers_tensor_is_not_touched():
    mine = torch.from_numpy(IMAGES).float().requires_grad_()
    data = given_images(mine, LABELS, CPU)
    data.images(torch.arange(4)).add_(1)
    assert torch.equal(mine, torch.from_numpy(IMAGES).float())


def test_grey_and_single_images():
    data = given_images(np.zeros((1, 1, 7, 3)), [0], CPU)
    assert data.image_shape == (1, 7, 3)


def test_fingerprints_differ_by_a_single_value():
    other = IMAGES.copy()
    other[3, 2, 4, 5] += 1e-3
    first = given_images(IMAGES, LABELS, CPU)
    assert first.fingerprint == given_images(IMAGES.copy(), LABELS, CPU).fingerprint
    assert first.fingerprint != given_images(other, LABELS, CPU).fingerprint
    assert first.subset(torch.tensor([2, 0])).ids.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("images", "labels", "message", "hint"),
    [
        (IMAGES * 255, LABELS, "from .* to 25", "divide by 255"),
        ((IMAGES * 255).astype(np.uint8), LABELS, "got uint8", "divide by 255"),
        (IMAGES * 2 - 1, LABELS, r"must lie in \[0, 1\]", r"\(images \+ 1\) / 2"),
        ((IMAGES - 0.4) / 0.2, LABELS, "must lie", "inside the module"),
        (IMAGES * np.nan, LABELS, "NaN", "loaded"),
        (IMAGES[0], LABELS, r"shape \(3, 5, 6\)", "images.None"),
        (IMAGES.transpose(0, 2, 3, 1), LABELS, r"shape \(4, 5, 6, 3\)", "transpose"),
        (IMAGES, LABELS[:3], "4 images but 3 labels", "one label"),
        (IMAGES[:0], LABELS[:0], "no images", "at least one"),
        (IMAGES, LABELS - 1, "negative, got -1", "zero"),
        (IMAGES, LABELS.astype(float), "flat array of integers, got float64", "class numbers"),
        (IMAGES, np.eye(4, dtype=int), r"\(4, 4\)", "one-hot"),
    ],
)
def test_refusals(images, labels, message, hint):
    with pytest.raises(DataError, match=message) as caught:
        given_images(images, labels, CPU)
    assert re.search(hint, caught.value.hint)
