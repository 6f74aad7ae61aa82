import pytest
import torch

from robust0.errors import ModelError
from robust0.models.adapt import adaptation_plan
from robust0.models.build import build


def planned(name, *size, **options):
    height, width = size if len(size) == 2 else (size[0], size[0])
    return adaptation_plan(name, image_shape=(3, height, width), classes=10, **options)


CASES = [
    ("convnext_tiny", (32,), "convnext_tiny", {"patch_size": 2}),
    ("convnext_tiny", (64,), "convnext_tiny", {"patch_size": 2}),
    ("convnext_tiny", (65,), "convnext_tiny", {}),
    ("convnextv2_atto", (32,), "convnextv2_atto", {"patch_size": 2}),
    ("convnext_zepto_rms_ols", (32,), "convnext_zepto_rms_ols", {}),
    (
        "swin_tiny_patch4_window7_224",
        (32,),
        "swin_tiny_patch4_window7_224",
        {"img_size": 32, "patch_size": 2, "window_size": 4},
    ),
    (
        "swin_tiny_patch4_window7_224",
        (32, 48),
        "swin_tiny_patch4_window7_224",
        {"img_size": [32, 48], "patch_size": 2, "window_size": 4},
    ),
    ("swin_tiny_patch4_window7_224", (128,), "swin_tiny_patch4_window7_224", {"img_size": 128}),
    ("swin_tiny_patch4_window7_224", (224,), "swin_tiny_patch4_window7_224", {}),
    ("vit_tiny_patch16_224", (32,), "vit_tiny_patch16_224", {"img_size": 32, "patch_size": 4}),
    ("vit_tiny_patch16_224", (28,), "vit_tiny_patch16_224", {"img_size": 28, "patch_size": 4}),
    ("vit_tiny_patch16_224", (30,), "vit_tiny_patch16_224", {"img_size": 30, "patch_size": 2}),
    ("vit_tiny_patch16_224", (64,), "vit_tiny_patch16_224", {"img_size": 64, "patch_size": 8}),
    ("vit_tiny_patch16_224", (96,), "vit_tiny_patch16_224", {"img_size": 96}),
    ("vit_tiny_patch16_224", (224,), "vit_tiny_patch16_224", {}),
    ("deit_tiny_patch16_224", (32,), "deit_tiny_patch16_224", {"img_size": 32, "patch_size": 4}),
    ("resnet18", (32,), "resnet18_small", {}),
    ("resnet34", (64,), "resnet34_small", {}),
    ("resnet50", (32, 32), "resnet50_small", {}),
    ("resnet18.a1_in1k", (32,), "resnet18_small", {}),
    ("resnet18", (32, 65), "resnet18", {}),
    ("resnet18", (224,), "resnet18", {}),
    ("resnet101", (32,), "resnet101", {}),
    ("preact_resnet18", (32,), "preact_resnet18", {}),
    ("preact_resnet18", (224,), "preact_resnet18", {}),
    ("maxvit_nano_rw_256", (224,), "maxvit_nano_rw_256", {"img_size": 224}),
]


@pytest.mark.parametrize(("name", "size", "arch", "arguments"), CASES)
def test_the_table(name, size, arch, arguments):
    found = planned(name, *size)
    assert (found.spec.arch, found.spec.arch_args) == (arch, arguments)
    changed = arch != name or arguments
    assert len(found.adaptations) == bool(changed)
    if changed:
        height, width = size if len(size) == 2 else (size[0], size[0])
        assert f"{height}x{width} images" in found.adaptations[0]
        assert all(f"{key}={value}" in found.adaptations[0] for key, value in arguments.items())


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("swin_tiny_patch4_window7_224", (28, 28)),
        ("swin_tiny_patch4_window7_224", (48, 64)),
        ("swinv2_tiny_window8_256", (32, 32)),
        ("vit_tiny_patch16_224", (30, 32)),
        ("test_convnext", (32, 32)),
    ],
)
def test_unusual_sizes_really_run(name, size):
    model = build(planned(name, *size).spec)
    assert model.eval()(torch.rand(1, 3, *size)).shape == (1, 10)


def test_what_the_user_sets_wins():
    assert planned("convnext_tiny", 32, args={"patch_size": 4}).spec.arch_args == {"patch_size": 4}
    found = planned("swin_tiny_patch4_window7_224", 32, args={"window_size": 2})
    assert found.spec.arch_args == {"window_size": 2, "img_size": 32}
    found = planned("vit_tiny_patch16_224", 32, args={"img_size": 32, "patch_size": 8})
    assert found.spec.arch_args == {"img_size": 32, "patch_size": 8}
    assert found.adaptations == ()


def test_the_name_can_be_taken_literally():
    found = planned("resnet18", 32, adapt=False)
    assert found.spec.arch == "resnet18"
    assert found.adaptations == ()


def test_normalisation_is_none_unless_given():
    assert planned("resnet18", 32).spec.mean == (0.0, 0.0, 0.0)
    assert planned("resnet18", 32).spec.std == (1.0, 1.0, 1.0)
    found = planned("resnet18", 32, mean=(0.5,) * 3, std=(0.2,) * 3)
    assert (found.spec.mean, found.spec.std) == ((0.5,) * 3, (0.2,) * 3)


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        ((0.5,), None),
        (None, (1.0, 1.0)),
        (None, (1.0, 0.0, 1.0)),
        ((float("nan"),) * 3, None),
    ],
)
def test_normalisation_that_does_not_fit(mean, std):
    with pytest.raises(ModelError, match="3-channel images"):
        planned("resnet18", 32, mean=mean, std=std)


def test_sources_of_weights_need_pretrained():
    with pytest.raises(ModelError, match="names published weights") as refusal:
        planned("hf-hub:timm/resnet18.a1_in1k", 224)
    assert "--pretrained" in refusal.value.hint


def test_unknown_names_and_arguments():
    with pytest.raises(ModelError, match="timm knows no network"):
        planned("resnet_18", 32)
    with pytest.raises(ModelError, match="cannot be set"):
        planned("resnet18", 32, args={"num_classes": 3})


@pytest.mark.parametrize(
    ("shape", "classes"),
    [((3, 32, 32), 1), ((3, 32, 32), 10**6), ((3, 2000, 32), 10), ((3, 0, 32), 10)],
)
def test_data_that_no_checkpoint_could_record(shape, classes):
    with pytest.raises(ModelError, match="expected"):
        adaptation_plan("resnet18", image_shape=shape, classes=classes)
