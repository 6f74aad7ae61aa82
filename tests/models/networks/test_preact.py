import pytest
import timm
import torch
from torch.nn import functional

import robust0.models  # noqa: F401 - registers the networks
from robust0.models.networks.preact import PreActBlock, PreActResNet

WIDTHS = {"": 64, "_w8": 8, "_w16": 16, "_w24": 24, "_w32": 32, "_w48": 48}


def batch_norm(x, state, name):
    return functional.batch_norm(
        x,
        state[f"{name}.running_mean"],
        state[f"{name}.running_var"],
        state[f"{name}.weight"],
        state[f"{name}.bias"],
    )


def reference(state, images):
    """The network of the paper written as formulas over its state dict."""
    x = functional.conv2d(images, state["conv1.weight"], padding=1)
    for stage in range(1, 5):
        for index in range(2):
            name = f"layer{stage}.{index}"
            stride = 2 if stage > 1 and index == 0 else 1
            active = torch.log1p(batch_norm(x, state, f"{name}.bn1").exp())
            shortcut = state.get(f"{name}.shortcut.0.weight")
            kept = x if shortcut is None else functional.conv2d(active, shortcut, stride=stride)
            out = functional.conv2d(active, state[f"{name}.conv1.weight"], stride=stride, padding=1)
            out = torch.log1p(batch_norm(out, state, f"{name}.bn2").exp())
            x = functional.conv2d(out, state[f"{name}.conv2.weight"], padding=1) + kept
    x = batch_norm(x, state, "bn").clamp(min=0).flatten(2).mean(dim=2)
    return x @ state["linear.weight"].T + state["linear.bias"]


@pytest.fixture
def thin():
    network = timm.create_model("preact_resnet18_w8", num_classes=5)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):  # statistics that are not the identity
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 2.0)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.5, 0.5)
    return network.double().eval()


def test_the_forward_pass_is_the_papers(thin):
    images = torch.rand(3, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(thin(images), reference(thin.state_dict(), images))


@pytest.mark.parametrize(("suffix", "width"), WIDTHS.items())
def test_every_width_is_registered_with_timm(suffix, width):
    with torch.device("meta"):
        network = timm.create_model(f"preact_resnet18{suffix}", num_classes=10)
    assert isinstance(network, PreActResNet)
    assert network.conv1.out_channels == width
    assert network.get_classifier().in_features == 8 * width == network.num_features
    assert network.pretrained_cfg["input_size"] == (3, 32, 32)
    assert network.pretrained_cfg["mean"] == (0.0, 0.0, 0.0)


def test_the_full_network_has_the_known_number_of_parameters():
    with torch.device("meta"):
        network = timm.create_model("preact_resnet18", num_classes=10)
    assert sum(weight.numel() for weight in network.parameters()) == 11_172_170


def test_the_stem_has_neither_bias_nor_normalisation():
    names = timm.create_model("preact_resnet18_w8").state_dict()
    assert [name for name in names if name.startswith("conv1")] == ["conv1.weight"]
    assert not any(name.startswith("bn1") for name in names)


def test_only_a_changed_shape_has_a_convolution_in_its_shortcut():
    assert PreActBlock(8, 8, 1).shortcut is None
    assert PreActBlock(8, 16, 1).shortcut is not None
    assert PreActBlock(8, 8, 2).shortcut is not None


def test_larger_and_grey_images():
    network = timm.create_model("preact_resnet18_w8", in_chans=1, num_classes=4)
    assert network(torch.rand(2, 1, 224, 224)).shape == (2, 4)


def test_resetting_the_classifier(thin):
    thin.reset_classifier(7)
    assert thin.num_classes == 7
    assert thin.float()(torch.rand(2, 3, 32, 32)).shape == (2, 7)
    thin.reset_classifier(0)
    assert thin(torch.rand(2, 3, 32, 32)).shape == (2, 64)
    with pytest.raises(ValueError, match="avg"):
        thin.reset_classifier(7, global_pool="max")


def test_features_for_timm_users():
    features = timm.create_model("preact_resnet18_w8", features_only=True)
    shapes = [tuple(x.shape[1:]) for x in features(torch.rand(2, 3, 32, 32))]
    assert shapes == [(8, 32, 32), (16, 16, 16), (32, 8, 8), (64, 4, 4)]
    assert features.feature_info.reduction() == [1, 2, 4, 8]


def test_there_are_no_pretrained_weights():
    with pytest.raises(RuntimeError, match="No pretrained weights"):
        timm.create_model("preact_resnet18_w8", pretrained=True)


def test_dropout_acts_in_training_only():
    network = timm.create_model("preact_resnet18_w8", drop_rate=0.9)
    images = torch.rand(4, 3, 32, 32)
    assert torch.equal(network.eval()(images), network(images))
    features = network.forward_features(images)
    network.train()
    assert not torch.equal(network.forward_head(features), network.forward_head(features))
