import torch
from torch import nn

from robust0.models.normalize import Normalized, bare

MEAN, STD = (0.1, 0.2, 0.3), (0.5, 1.0, 2.0)


def test_mean_and_std_are_applied_per_channel():
    images = torch.rand(2, 3, 4, 5)
    seen = Normalized(nn.Identity(), MEAN, STD)(images)
    for channel, (mean, std) in enumerate(zip(MEAN, STD, strict=True)):
        torch.testing.assert_close(seen[:, channel], (images[:, channel] - mean) / std)


def test_no_normalisation_leaves_the_very_same_tensor():
    images = torch.rand(2, 3, 4, 5)
    assert Normalized(nn.Identity(), (0.0,) * 3, (1.0,) * 3)(images) is images


def test_the_statistics_stay_out_of_the_state_dict():
    model = Normalized(nn.Linear(3, 2), MEAN, STD)
    assert list(model.state_dict()) == ["network.weight", "network.bias"]
    assert list(bare(model).state_dict()) == ["weight", "bias"]


def test_the_statistics_follow_the_model():
    model = Normalized(nn.Identity(), MEAN, STD).double()
    assert model.mean.dtype == model.std.dtype == torch.float64
    assert model.to("meta").mean.device.type == "meta"


def test_bare_looks_through_every_wrapper():
    network = nn.Linear(3, 2)
    model = Normalized(network, MEAN, STD)
    assert bare(network) is network
    assert bare(nn.DataParallel(model)) is network
    assert bare(torch.compile(model)) is network
