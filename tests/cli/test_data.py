import json

import numpy as np
import pytest

from robust0.cli.app import run
from robust0.data.catalogue import DATASETS


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBUST0_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ROBUST0_OFFLINE", "1")


def test_list_as_json_holds_the_table(capsys):
    assert run(["data", "list", "--output-format", "json"]) == 0
    captured = capsys.readouterr()
    rows = json.loads(captured.out)
    assert [row["name"] for row in rows] == list(DATASETS)
    assert {row["name"] for row in rows if row["ready"]} == {"sample"}
    assert "folder:PATH" in captured.err


@pytest.mark.parametrize("form", ["auto", "rich", "plain"])
def test_list_in_other_forms(capsys, form):
    assert run(["data", "list", "--output-format", form]) == 0
    assert "cifar100" in capsys.readouterr().out


def test_info_sample_works_offline(capsys):
    assert run(["data", "info", "sample", "--split", "train", "--output-format", "json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["images"] == 1000
    assert values["split"] == "train"
    assert values["image_size"] == "3x32x32"
    assert values["classes"] == len(values["class_names"]) == 10
    assert len(values["fingerprint"]) == len(values["images_sha256"]) == 64
    assert values["source"].endswith("sample")


def test_info_of_the_users_own_arrays(capsys, tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, images=np.zeros((3, 8, 8, 3), np.uint8), labels=np.array([0, 1, 1]))
    assert run(["data", "info", f"npz:{path}", "--output-format", "json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["split"], values["images_per_class"]) == ("all", "1 to 2")


def test_pull_sample_has_nothing_to_fetch(capsys):
    assert run(["data", "pull", "sample", "--output-format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["fetched"] is False


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["info", "cifar"], "unknown dataset 'cifar'; known: cifar10", "did you mean cifar10"),
        (["info", "cifar10"], "not in the cache", "robust0 data pull cifar10"),
        (["pull", "cifar10"], "ROBUST0_OFFLINE", "--data sample"),
        (["pull", "imagenet100"], "cannot be fetched", "--data-dir"),
        (["info", "cifar10", "--data-dir", "/no/such/place"], "not in /no/such/place", "expected"),
        (["info", "npz:/no/such.npz"], "there is no file", "check the path"),
    ],
)
def test_mistakes_are_two_lines_and_code_2(capsys, arguments, message, hint):
    assert run(["data", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 2
    assert message in lines[0]
    assert hint in lines[1]


def test_a_wrong_split_is_a_usage_error(capsys):
    assert run(["data", "info", "sample", "--split", "middle"]) == 2
