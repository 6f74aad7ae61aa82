"""robust0 zoo push to a hub on this machine, and the same weights back from it."""

import json
import re
from pathlib import Path

import pytest
import timm
import torch
import yaml
from huggingface_hub import ModelCard, constants

import robust0
from robust0.cli.app import run
from robust0.errors import ZooError
from robust0.zoo.fetch import drive, find_card, weights
from tests.zoo.conftest import NAME, digest_of
from tests.zoo.hub_server import TOKEN, Hub

# huggingface_hub hands files to its HTTP library in a way that this one deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
REPO, VOTES = "me/net", "cifar10-votes25-e120"
TARGET = f"hf-hub:{REPO}"


@pytest.fixture
def hub(httpserver, tmp_path, monkeypatch):
    """A hub that takes this test's token, and a client that knows no other."""
    made = Hub(httpserver.url_for("").rstrip("/"))

    httpserver.expect_request(re.compile(".*")).respond_with_handler(made)
    monkeypatch.setattr(constants, "ENDPOINT", made.address)
    template = made.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return made


def push(*words):
    return run(["zoo", "push", *map(str, words)])


def test_a_model_goes_to_the_hub_and_comes_back(hub, zoo, capsys):
    assert push(NAME, TARGET, "--zoo", zoo) == 0
    pinned = capsys.readouterr().out.strip()
    assert pinned == f"{TARGET}@{hub.head(REPO)}"
    files = hub.files(REPO)
    assert set(files) == {
        "README.md", "config.json", "index.yaml", "model.safetensors", f"{NAME}.yaml",
        f"{NAME}.report.json", f"{NAME}.verdicts.json",
    }  # fmt: skip
    weights_here = zoo / f"{NAME}.safetensors"
    assert files["model.safetensors"] == weights_here.read_bytes()
    assert digest_of(weights_here) in hub.verified  # it came through git-LFS
    assert hub.private == {REPO: False}

    for name in (TARGET, pinned):
        assert run(["zoo", "pull", name]) == 0
        assert Path(capsys.readouterr().out.strip()).read_bytes() == weights_here.read_bytes()
    assert run(["zoo", "pull", NAME, "--zoo", pinned]) == 0  # the repository is a zoo as well

    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    ours = robust0.load(TARGET)
    theirs = timm.create_model(TARGET, pretrained=True).eval()
    expected = robust0.load(weights_here)(images)
    assert torch.equal(ours(images), expected)
    assert torch.equal(theirs((images - 0.5) / 0.25), expected)
    words = ["--data", "sample", "--images", "16", "--batch-size", "16", "--dry-run"]
    assert run(["audit", TARGET, *words]) == 0


def test_the_card_of_a_certified_classifier(hub, tmp_path, capsys):
    assert push(VOTES, TARGET, "--private") == 0
    assert hub.private == {REPO: True}
    path = tmp_path / "README.md"
    path.write_bytes(hub.files(REPO)["README.md"])
    card = ModelCard.load(path)  # as the hub's own library reads it
    told = {result.metric_name: result for result in card.data.eval_results}
    source = find_card(VOTES, None).card
    (ten,) = [s for s in source.certificate.certified if (s.name, s.budget) == ("run-off", 10)]
    clean = source.certificate.clean.percent
    assert told["clean accuracy, 1,000 images (%)"].metric_value == clean
    name = "accuracy under attack (worst case), 5 pixels changed, effort quick, 64 images (%)"
    assert told[name].metric_value == source.score("worst-case", 5).percent
    assert told[name].metric_args["effort"] == "quick"
    proof = told["certified accuracy, 10 pixels changed, partition-vote, 1,000 images (%)"]
    assert proof.metric_value == ten.percent
    assert proof.metric_args == {
        "budget": 10, "unit": "pixel", "certificate": "partition-vote", "images": 1000,
        "bound": "lower", "low": ten.low, "high": ten.high,
    }  # fmt: skip
    assert {(r.task_type, r.dataset_type, r.dataset_split) for r in told.values()} == {
        ("image-classification", "uoft-cs/cifar10", "test")
    }
    assert (card.data.license, card.data.library_name) == ("mit", "timm")
    assert "import robust0.models" in card.text

    whole, inner = robust0.load(TARGET), timm.create_model(TARGET, pretrained=True)
    state = inner.state_dict()
    assert state
    for key, value in whole.network.network.state_dict().items():
        assert torch.equal(state[key], value)


def test_what_comes_back_is_checked_against_the_card(hub, zoo):
    assert push(NAME, TARGET, "--zoo", zoo) == 0
    hub.files(REPO)["model.safetensors"] = bytes(len(hub.files(REPO)["model.safetensors"]))
    with pytest.raises(ZooError, match=r"has sha256 .* its card says"):
        drive(weights(find_card(TARGET)))


def test_a_run_with_its_audit(hub, runs, capsys):
    assert push(runs[0], TARGET) == 2
    assert "--audit AUDIT_RUN" in capsys.readouterr().err
    assert push(runs[0], TARGET, "--audit", runs[1], "--id", "mine", "--licence", "My-1.0") == 0
    front = yaml.safe_load(hub.files(REPO)["README.md"].split(b"---\n")[1])
    assert (front["license"], front["license_name"]) == ("other", "My-1.0")
    assert find_card(TARGET).card.id == "mine"


def test_a_dry_run_writes_the_folder_and_asks_nobody(hub, zoo, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("HF_TOKEN")
    out = tmp_path / "parcel"
    words = (NAME, TARGET, "--zoo", zoo, "--dry-run", "-o", out)
    assert push(*words, "--output-format", "json") == 0
    listed = {row["file"]: row["bytes"] for row in json.loads(capsys.readouterr().out)}
    assert listed == {path.name: path.stat().st_size for path in out.iterdir()}
    assert not hub.commits
    network = timm.create_model(f"local-dir:{out}", pretrained=True)
    assert network.num_classes == 10
    assert push(*words) == 2
    assert "not empty" in capsys.readouterr().err


def refused(capsys) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    lines = [line for line in captured.err.splitlines() if line.startswith(("error:", "hint:"))]
    assert len(lines) == 2
    return lines


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("hf-hub:net", "is not hf-hub:OWNER/REPO"),
        ("me/net", "is not hf-hub:OWNER/REPO"),
        ("hf-hub:me/net@main", "names a revision"),
        ("hf-hub:me/-net", "cannot be a repository"),
    ],
)
def test_names_that_are_no_repository(hub, zoo, capsys, target, message):
    assert push(NAME, target, "--zoo", zoo) == 2
    assert message in refused(capsys)[0]
    assert not hub.commits


def test_refusals_before_and_by_the_hub(hub, zoo, monkeypatch, capsys):
    words = (NAME, TARGET, "--zoo", zoo)
    assert push(*words, "--title", "x") == 2
    assert "--title is about a run" in refused(capsys)[0]
    hub.readonly = True
    assert push(*words) == 2
    assert "may not write to me/net" in refused(capsys)[0]
    hub.readonly, hub.broken = False, True
    assert push(*words) == 2
    assert "HTTP 413" in refused(capsys)[0]
    hub.broken = False
    assert push(*words, "--private") == 2  # it exists by now
    assert "exists and is public" in refused(capsys)[0]
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert push(*words) == 2
    assert "does not accept the token" in refused(capsys)[0]
    monkeypatch.delenv("HF_TOKEN")
    assert push(*words) == 2
    assert "hf auth login" in refused(capsys)[1]
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert push(*words) == 2
    assert "check the connection" in refused(capsys)[1]
    assert hub.files(REPO) == {}
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    assert push(*words) == 0  # into the repository that exists


def test_a_repository_without_cards(hub, capsys):
    hub.commits["me/other"] = {"1" * 40: {"config.json": b"{}"}}
    assert run(["zoo", "pull", "hf-hub:me/other"]) == 2
    assert "has no index.yaml" in refused(capsys)[0]
    assert run(["zoo", "pull", "hf-hub:me/none"]) == 2
    assert "has no public hf-hub:me/none" in refused(capsys)[0]
