import json
import logging

import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import save_file
from werkzeug import Response

from robust0.errors import ModelError
from robust0.models.adapt import adaptation_plan
from robust0.models.build import build
from robust0.models.checkpoint import Metadata, load_checkpoint, save_checkpoint
from robust0.models.pretrained import realize
from robust0.models.sources import find_source

MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.3, 0.4]


def publish(folder, arch, *, classes=5, model_args=None, config=None, change=None):
    """A folder as timm publishes networks; returns its weights."""
    network = timm.create_model(arch, num_classes=classes, **(model_args or {}))
    state = {name: value + 2**-7 for name, value in network.state_dict().items()}
    state = {name: value.to(network.state_dict()[name].dtype) for name, value in state.items()}
    published = {"classifier": network.pretrained_cfg["classifier"], "mean": MEAN, "std": STD}
    published |= {"first_conv": network.pretrained_cfg["first_conv"], "url": "http://evil.invalid"}
    document = {
        "architecture": arch,
        "num_classes": classes,
        "model_args": model_args or {},
        "pretrained_cfg": {**published, **(config or {})},
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(document))
    save_file(change(state) if change else state, folder / "model.safetensors")
    return state


def planned(folder, size, classes=10, **options):
    options.setdefault("image_shape", (3, size, size))
    return adaptation_plan(f"local-dir:{folder}", classes=classes, pretrained=True, **options)


def test_published_weights_with_a_new_head(tmp_path):
    state = publish(tmp_path, "test_resnet")
    found = planned(tmp_path, 160)
    assert found.spec.arch == "test_resnet"
    assert (found.spec.mean, found.spec.std) == (tuple(MEAN), tuple(STD))
    model = realize(found)
    got = model.network.state_dict()
    kept = [name for name in state if not name.startswith("fc.")]
    assert all(torch.equal(got[name], state[name]) for name in kept)
    assert got["fc.weight"].shape == (10, state["fc.weight"].shape[1])
    assert model.training
    assert torch.equal(realize(found).network.fc.weight, model.network.fc.weight)
    assert not torch.equal(realize(found, seed=1).network.fc.weight, model.network.fc.weight)


def test_the_head_is_kept_when_the_classes_are_as_many(tmp_path):
    state = publish(tmp_path, "test_resnet", classes=10)
    assert torch.equal(realize(planned(tmp_path, 160)).network.fc.weight, state["fc.weight"])


def test_a_pretrained_network_comes_back_from_a_checkpoint(tmp_path):
    publish(tmp_path / "hub", "test_vit", model_args={"global_pool": "avg", "img_size": 64})
    found = planned(tmp_path / "hub", 32)
    model = realize(found)
    path = tmp_path / "x.safetensors"
    save_checkpoint(path, model, Metadata.of(found.spec, pretrained=found.source.name))
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(load_checkpoint(path).network(images), model.eval()(images))


def test_timm_resamples_patches_and_positions(tmp_path):
    state = publish(tmp_path, "test_vit")
    found = planned(tmp_path, 32)
    assert found.spec.arch_args == {"img_size": 32, "patch_size": 4}
    assert "timm resamples" in found.adaptations[0]
    network = realize(found).network
    assert network.patch_embed.proj.weight.shape[2:] == (4, 4)
    assert torch.equal(network.blocks[0].attn.qkv.weight, state["blocks.0.attn.qkv.weight"])


@pytest.mark.parametrize(
    ("arch", "words"), [("test_convnext", "patch size kept"), ("resnet18", "7x7 stem kept")]
)
def test_stems_that_cannot_be_resampled_are_kept(arch, words, tmp_path):
    publish(tmp_path, arch)
    found = planned(tmp_path, 32)
    assert found.spec.arch == arch
    assert found.spec.arch_args == {}
    assert words in found.adaptations[0]
    assert realize(found).eval()(torch.rand(1, 3, 32, 32)).shape == (1, 10)


def test_a_patch_size_that_cannot_be_resampled_is_refused(tmp_path):
    publish(tmp_path, "test_convnext")
    with pytest.raises(ModelError, match=r"do not fit this network: .*stem") as refusal:
        realize(planned(tmp_path, 32, args={"patch_size": 2}))
    assert "patch size" in refusal.value.hint


def test_grey_images_use_the_average(tmp_path):
    publish(tmp_path, "test_resnet")
    found = planned(tmp_path, 160, image_shape=(1, 160, 160))
    assert found.spec.mean == (pytest.approx(0.5),)
    assert found.spec.std == (pytest.approx(0.3),)
    assert realize(found).eval()(torch.rand(1, 1, 160, 160)).shape == (1, 10)
    with pytest.raises(ModelError, match="3-channel images, the data has 4"):
        planned(tmp_path, 160, image_shape=(4, 160, 160))


def test_weights_that_timm_would_ignore_in_silence(tmp_path):
    publish(tmp_path, "test_resnet", change=lambda s: {f"model.{k}": v for k, v in s.items()})
    with pytest.raises(ModelError, match=r"lack \d+ tensors, first 'conv1"):
        realize(planned(tmp_path, 160))


def test_weights_of_another_network(tmp_path):
    publish(
        tmp_path, "test_resnet", change=lambda s: {k: v[:1] if v.ndim else v for k, v in s.items()}
    )
    with pytest.raises(ModelError, match="do not fit this network"):
        realize(planned(tmp_path, 160))


def test_weights_that_are_not_numbers(tmp_path):
    publish(tmp_path, "test_resnet", change=lambda s: {k: v * float("nan") for k, v in s.items()})
    with pytest.raises(ModelError, match="NaN or Inf"):
        realize(planned(tmp_path, 160))


def test_a_damaged_file(tmp_path):
    publish(tmp_path, "test_resnet")
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError, match="cut off in its tensors"):
        realize(planned(tmp_path, 160))


def test_pickles_are_not_read(tmp_path):
    publish(tmp_path, "test_resnet")
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="has 0 safetensors files") as refusal:
        realize(planned(tmp_path, 160))
    assert "zoo convert" in refusal.value.hint


def test_a_single_file_of_another_name(tmp_path):
    publish(tmp_path, "test_resnet")
    (tmp_path / "model.safetensors").rename(tmp_path / "best.safetensors")
    realize(planned(tmp_path, 160))


HOSTILE = {
    "cannot read": None,
    "not valid JSON": "{",
    "a key occurs twice": '{"architecture": "a", "architecture": "b"}',
    "not a JSON object": "[]",
    "does not describe a timm network": "{}",
    "does not describe": '{"architecture": "resnet18", "model_args": [1]}',
    "is not the name of a timm network": '{"architecture": "local-dir:/tmp"}',
    "timm knows no network": '{"architecture": "resnet_1"}',
    "'cache_dir' cannot be set": '{"architecture": "resnet18", "model_args": {"cache_dir": "/x"}}',
    "a mean that is not": '{"architecture": "resnet18", "mean": ["x"]}',
    "a std that is not": '{"architecture": "resnet18", "std": []}',
    "more than": " " * 10_000_001,
}


@pytest.mark.parametrize(("words", "text"), HOSTILE.items())
def test_hostile_configs(words, text, tmp_path):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=words):
        find_source(f"local-dir:{tmp_path}")


def test_configs_of_one_level_are_read(tmp_path):
    text = json.dumps({"architecture": "resnet18", "mean": MEAN, "std": STD, "num_classes": 7})
    (tmp_path / "config.json").write_text(text)
    found = find_source(f"local-dir:{tmp_path}")
    assert found.mean == tuple(MEAN)
    assert found.config == {"num_classes": 7}


@pytest.mark.parametrize("name", ["http://x/y", "hf-hub:", "local-dir:", "C:\\models"])
def test_other_sources(name):
    with pytest.raises(ModelError, match="is not a source of weights"):
        find_source(name)


def test_networks_without_published_weights():
    with pytest.raises(ModelError, match="no pretrained weights for preact_resnet18"):
        find_source("preact_resnet18")


def test_networks_published_as_pickles_only():
    with pytest.raises(ModelError, match="as a pickle only") as refusal:
        find_source("legacy_seresnet18.in1k")
    assert "zoo convert" in refusal.value.hint


def test_timms_own_weights_and_their_statistics():
    size = (3, 224, 224)
    found = adaptation_plan("resnet18.a1_in1k", image_shape=size, classes=10, pretrained=True)
    assert found.spec.mean == (0.485, 0.456, 0.406)
    assert found.source.repository == "timm/resnet18.a1_in1k"
    assert build(found.spec).normalizes


# --- the hub, played by a server on this machine -------------------------------------------------


@pytest.fixture
def hub(httpserver, tmp_path, monkeypatch):
    endpoint = httpserver.url_for("").rstrip("/")
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))

    def serve(folder, *files):
        for file in files:
            data = (folder / file).read_bytes()
            headers = {"ETag": f'"{file}"', "X-Repo-Commit": "a" * 40}
            httpserver.expect_request(f"/me/net/resolve/main/{file}").respond_with_data(
                data, headers=headers
            )

    return serve


def test_a_network_from_the_hub(hub, tmp_path):
    state = publish(tmp_path / "net", "test_resnet")
    hub(tmp_path / "net", "config.json", "model.safetensors")
    found = adaptation_plan("hf-hub:me/net", image_shape=(3, 160, 160), classes=10, pretrained=True)
    assert found.source.name == "hf-hub:me/net"
    assert torch.equal(realize(found).network.conv1[0].weight, state["conv1.0.weight"])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("RepoNotFound", "the hub has no public hf-hub:me/net"),
        ("GatedRepo", "the hub has no public hf-hub:me/net"),
        ("RevisionNotFound", "the hub has no public hf-hub:me/net"),
        ("EntryNotFound", r"hf-hub:me/net has no config\.json"),
    ],
)
def test_refusals_of_the_hub(code, words, hub, httpserver):
    status = 403 if code == "GatedRepo" else 404
    response = Response(status=status, headers={"X-Error-Code": code})
    httpserver.expect_request("/me/net/resolve/main/config.json").respond_with_response(response)
    with pytest.raises(ModelError, match=words):
        find_source("hf-hub:me/net")


def test_no_connection(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        ModelError, match="cannot be reached, the cache does not have it"
    ) as refusal:
        find_source("hf-hub:me/net")
    assert "local-dir:" in refusal.value.hint


def test_no_connection_for_timms_own_weights(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    found = adaptation_plan("test_resnet", image_shape=(3, 160, 160), classes=10, pretrained=True)
    with pytest.raises(ModelError, match=r"cannot fetch model\.safetensors of test_resnet"):
        realize(found)


def test_a_name_the_hub_cannot_have():
    with pytest.raises(ModelError, match="is not OWNER/NAME"):
        find_source("hf-hub:a/b/c")


def test_the_hubs_log_is_as_before(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    before = logging.getLogger("huggingface_hub").level
    with pytest.raises(ModelError):
        find_source("hf-hub:me/net")
    assert logging.getLogger("huggingface_hub").level == before
