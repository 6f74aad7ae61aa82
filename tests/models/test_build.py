import pytest
import timm
import torch

from robust0.errors import ModelError
from robust0.models.build import NetworkSpec, build, check_arguments, check_name, create, skeleton

RGB = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def spec(arch, size=32, classes=10, **arguments):
    return NetworkSpec(arch, classes, (3, size, size), arch_args=arguments, **RGB)


def test_the_seed_decides_the_weights():
    wanted = spec("preact_resnet18_w8")
    state = torch.get_rng_state()
    first, same, other = build(wanted), build(wanted, seed=0), build(wanted, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    weights = [model.network.conv1.weight for model in (first, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_it_is_in_train_mode_and_its_statistics_are_untouched():
    model = build(spec("preact_resnet18_w8"))
    assert model.training
    assert torch.equal(model.network.bn.running_mean, torch.zeros(64))


def test_normalisation_is_inside():
    plain = NetworkSpec("preact_resnet18_w8", 10, (3, 32, 32), (0.0,) * 3, (1.0,) * 3)
    inside = NetworkSpec("preact_resnet18_w8", 10, (3, 32, 32), (0.5,) * 3, (0.25,) * 3)
    images = torch.rand(2, 3, 32, 32)
    expected = build(plain).eval()((images - 0.5) / 0.25)
    torch.testing.assert_close(build(inside).eval()(images), expected)


def test_channels_follow_the_images():
    grey = NetworkSpec("resnet18_small", 3, (1, 28, 28), (0.0,), (1.0,))
    assert build(grey).network.conv1.in_channels == 1
    assert grey.create_args() == {"num_classes": 3, "in_chans": 1}


def test_a_skeleton_has_shapes_but_no_memory():
    wanted = spec("convnext_tiny", patch_size=2)
    state = skeleton(wanted).state_dict()
    assert {value.device.type for value in state.values()} == {"meta"}
    assert state["stem.0.weight"].shape == (96, 3, 2, 2)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet_18", "resnet18"),
        ("preact_resnet", "preact_resnet18"),
        ("convnet_tiny", "convnext_tiny"),
    ],
)
def test_unknown_names_get_close_ones(name, expected):
    with pytest.raises(ModelError, match="timm knows no network") as refusal:
        check_name(name)
    assert expected in refusal.value.hint


def test_a_name_close_to_nothing_gets_ours():
    with pytest.raises(ModelError) as refusal:
        check_name("zzzzzzzz")
    assert "preact_resnet18_w16" in refusal.value.hint


def test_unknown_tags_get_the_known_ones():
    check_name("resnet18.a1_in1k")
    with pytest.raises(ModelError, match="no weights tagged 'a9'") as refusal:
        check_name("resnet18.a9")
    assert "a1_in1k" in refusal.value.hint
    with pytest.raises(ModelError, match="preact_resnet18 has no weights tagged"):
        check_name("preact_resnet18.a1")


def test_every_registered_name_passes():
    for name in timm.list_models():
        check_name(name)


def test_an_image_size_the_network_cannot_take():
    with pytest.raises(
        ModelError, match="swin_tiny_patch4_window7_224 cannot take 32x32"
    ) as refusal:
        build(spec("swin_tiny_patch4_window7_224"))
    assert "img_size" in refusal.value.hint


def test_arguments_the_network_does_not_have():
    with pytest.raises(ModelError, match=r"timm cannot build resnet18\(colour='red'"):
        create(spec("resnet18", colour="red"))


def test_a_network_that_does_not_classify():
    with pytest.raises(ModelError, match=r"answers two images with .*, expected \(2, 10\)"):
        build(spec("test_vit", size=160, global_pool=""))  # one answer per patch


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_classes": 3},
        {"in_chans": 1},
        {"pretrained": True},
        {"pretrained_cfg_overlay": "x"},
        {"checkpoint_path": "x"},
        {"cache_dir": "x"},
        {"Upper": 1},
        {"drop_rate": float("nan")},
        {"drop_rate": float("inf")},
        {"depth": 10**6},
        {"act_layer": "x" * 100},
        {"act_layer": {"a": 1}},
        {"depths": [[1]]},
        {"depths": (1, 2)},
    ],
)
def test_arguments_that_are_not_allowed(arguments):
    with pytest.raises(ModelError, match="the model argument"):
        check_arguments(arguments)


def test_arguments_that_are():
    check_arguments(
        {"drop_rate": 0.1, "img_size": [32, 64], "act_layer": "relu", "x": None, "y": True}
    )
