import pytest
import timm
import torch

import robust0.models  # noqa: F401 - registers the networks

NAMES = ("resnet18", "resnet34", "resnet50")


@pytest.mark.parametrize("name", NAMES)
def test_only_the_stem_differs_from_timms(name):
    with torch.device("meta"):
        ours = timm.create_model(f"{name}_small", num_classes=10).state_dict()
        theirs = timm.create_model(name, num_classes=10).state_dict()
    assert list(ours) == list(theirs)
    different = [key for key in ours if ours[key].shape != theirs[key].shape]
    assert different == ["conv1.weight"]
    assert ours["conv1.weight"].shape == (64, 3, 3, 3)


def test_the_stem_keeps_the_resolution():
    network = timm.create_model("resnet18_small", num_classes=10, in_chans=1)
    images = torch.rand(2, 1, 32, 32)
    assert network.conv1(images).shape == (2, 64, 32, 32)
    assert network.forward_features(images).shape == (2, 512, 4, 4)
    assert network(images).shape == (2, 10)


def test_weights_of_the_large_stem_cannot_be_loaded():
    weights = timm.create_model("resnet18", num_classes=10).state_dict()
    with pytest.raises(RuntimeError, match=r"conv1\.weight"):
        timm.create_model("resnet18_small", num_classes=10).load_state_dict(weights)


def test_features_for_timm_users():
    features = timm.create_model("resnet18_small", features_only=True)
    shapes = [tuple(x.shape[2:]) for x in features(torch.rand(2, 3, 32, 32))]
    assert shapes == [(32, 32), (32, 32), (16, 16), (8, 8), (4, 4)]
    assert features.feature_info.reduction() == [1, 1, 2, 4, 8]


def test_another_stem_is_refused():
    with pytest.raises(TypeError, match="stem_type"):
        timm.create_model("resnet18_small", stem_type="deep", stem_width=32)
