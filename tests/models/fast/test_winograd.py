"""Convolutions by tiles: the same function as torch's, and only where that is quicker."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from robust0.auditing.guards import threads_per_call
from robust0.models.fast.oracle import Oracle, frozen
from robust0.models.fast.searching import TiledConv2d, search_copies
from robust0.models.fast.winograd import convolve, convolve_small, kernels_of, pays, suits
from robust0.rng import seeded

CPU = torch.device("cpu")
sides = st.integers(1, 11)
counts = st.integers(1, 5)


@settings(deadline=None, max_examples=40)
@given(counts, counts, counts, sides, sides, st.booleans(), st.booleans())
def test_it_is_the_convolution(count, channels, results, height, width, biased, last):
    with seeded("winograd", count, channels, results, height, width):
        images = torch.randn(count, channels, height, width)
        weight, bias = torch.randn(results, channels, 3, 3), torch.randn(results)
    if last:
        images = images.contiguous(memory_format=torch.channels_last)
    given_bias = bias if biased else None
    expected = functional.conv2d(
        images.double(), weight.double(), bias.double() if biased else None, padding=1
    )
    answer = convolve(images, kernels_of(weight), given_bias)
    assert answer.shape == expected.shape
    assert answer.dtype == torch.float32
    assert torch.allclose(answer.double(), expected, atol=2e-4)


def test_more_rows_than_are_convolved_together():
    with seeded("rows"):
        images, weight = torch.randn(37, 4, 16, 16), torch.randn(3, 4, 3, 3)
    answer = convolve(images, kernels_of(weight))
    assert torch.allclose(answer, functional.conv2d(images, weight, padding=1), atol=2e-4)


@settings(deadline=None, max_examples=20)
@given(counts, counts, counts)
def test_small_maps_are_convolved_one_after_the_other(count, channels, results):
    """The second convolution is given what the first one leaves in memory, in its layout."""
    with seeded("small", count, channels, results):
        maps, bias = torch.randn(count, channels, 4, 4), torch.randn(results)
        first, second = torch.randn(results, channels, 3, 3), torch.randn(2, results, 3, 3)
    between = functional.conv2d(maps.double(), first.double(), bias.double(), padding=1)
    expected = functional.conv2d(between, second.double(), padding=1)
    made = convolve_small(maps, kernels_of(first), bias)
    assert torch.allclose(made.double(), between, atol=2e-4)
    made = convolve_small(made, kernels_of(second), torch.zeros(2))
    assert torch.allclose(made.double(), expected, atol=2e-3)


def test_rounding_of_a_wide_layer():
    """What the module's text promises."""
    with seeded("rounding"):
        images, layer = torch.randn(16, 512, 8, 8), nn.Conv2d(512, 512, 3, padding=1, bias=False)
    with torch.no_grad():
        exact = functional.conv2d(images.double(), layer.weight.double(), padding=1)
        error = (convolve(images, kernels_of(layer.weight)).double() - exact).abs().max()
    assert error < 1e-4 * exact.std()


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.Conv2d(96, 128, 3, padding=1), True),
        (nn.Conv2d(80, 128, 3, padding=1), False),
        (nn.Conv2d(128, 80, 3, padding=1), False),
        (nn.Conv2d(100, 128, 3, padding=1), False),
        (nn.Conv2d(128, 100, 3, padding=1), False),
        (nn.Conv2d(96, 96, 3, padding=1, stride=2), False),
        (nn.Conv2d(96, 96, 3, padding=1, dilation=2), False),
        (nn.Conv2d(96, 96, 3), False),
        (nn.Conv2d(96, 96, 3, padding="same"), False),
        (nn.Conv2d(96, 96, 3, padding=1, padding_mode="reflect"), False),
        (nn.Conv2d(192, 192, 3, padding=1, groups=2), False),
        (nn.Conv2d(96, 96, 5, padding=1), False),
        (nn.Conv2d(96, 96, 3, padding=1, dtype=torch.float64), False),
        (nn.Conv2d(96, 96, 3, padding=1, device="meta"), False),
    ],
)
def test_which_layers_suit(layer, expected):
    assert suits(layer) == expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((48, 96, 4, 4), True),
        ((96, 96, 4, 4), True),
        ((48, 96, 5, 5), False),  # mostly waste
        ((48, 96, 7, 7), True),
        ((12, 96, 8, 8), True),
        ((16, 96, 8, 8), False),  # its 64 tiles are not whole products
        ((3, 96, 64, 64), True),
        ((3, 96, 68, 64), False),  # too many tiles
        ((96, 64, 64), False),  # one image without a batch
    ],
)
def test_which_maps_pay(shape, expected):
    assert pays(torch.empty(shape, device="meta")) == expected
    assert not pays(torch.empty(shape, device="meta", dtype=torch.bfloat16))


@pytest.mark.parametrize("count", [12, 24, 36, 48])
@pytest.mark.parametrize(("channels", "results", "side"), [(96, 112, 8), (128, 96, 16)])
def test_a_row_of_a_layer_does_not_depend_on_its_place(count, channels, results, side):
    with seeded("place", count):
        images = torch.randn(count, channels, side, side)
        kernels = kernels_of(torch.randn(results, channels, 3, 3))
        order = torch.randperm(count)
    assert pays(images)
    with threads_per_call(1):
        assert torch.equal(convolve(images, kernels)[order], convolve(images[order], kernels))


def wide_network():
    with seeded("wide"):
        model = nn.Sequential(
            nn.Conv2d(3, 96, 3, padding=1), nn.ReLU(), nn.Conv2d(96, 112, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(112, 5),
        )  # fmt: skip
        images = torch.rand(24, 3, 8, 8)
    return model.eval(), images


def test_compiled_it_is_the_same():
    model, images = wide_network()
    oracle = Oracle(model, 24, CPU, compiled=True)
    with frozen(model):
        assert torch.allclose(oracle.logits(images), oracle.exact(images), atol=1e-5)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_search_uses_it_for_logits_alone(dtype, monkeypatch):
    model, images = wide_network()
    used = []

    def spy(*arguments):
        used.append(len(arguments))
        return convolve(*arguments)

    monkeypatch.setattr("robust0.models.fast.winograd.convolve", spy)
    oracle = Oracle(model, 24, CPU, search_dtype=dtype)
    with frozen(model):
        assert torch.allclose(oracle.logits(images), oracle.exact(images), atol=1e-5)
        assert len(used) == 1
        oracle.gradient(images, torch.sum)
        assert len(used) == 1


def test_inside_a_model_s_own_autocast_it_stays_out():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = wide_network()[0]

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.inner(x).float()

    model, images = Own(), wide_network()[1]
    oracle = Oracle(model, 24, CPU)
    with frozen(model):
        assert torch.equal(oracle.logits(images), oracle.exact(images))


def test_a_row_does_not_depend_on_its_place():
    model, images = wide_network()
    oracle = Oracle(model, 24, CPU)
    order = torch.arange(len(images)).flip(0)
    with frozen(model), threads_per_call(1):
        assert torch.equal(oracle.logits(images)[order], oracle.logits(images[order]))


def test_copies_share_kernels_and_nothing_of_the_model():
    model, _ = wide_network()
    first, second = search_copies(model, 2)
    assert isinstance(first[2], TiledConv2d)
    assert first[2].kernels is second[2].kernels
    assert first[2].weight is not second[2].weight
    assert first.state_dict().keys() == model.state_dict().keys()


def test_a_layer_whose_weight_a_hook_makes_stays():
    model, images = wide_network()
    weight = model[2].weight.detach().clone()
    with torch.no_grad():
        model[2].weight.zero_()

    def make(layer, _):
        layer.weight.data.copy_(weight)

    model[2].register_forward_pre_hook(make)
    for dtype in (None, torch.bfloat16):
        (twin,) = search_copies(model, 1, dtype)
        assert type(twin[2]) is nn.Conv2d
    with torch.no_grad():
        assert torch.allclose(search_copies(model, 1)[0](images), model(images), atol=1e-5)
