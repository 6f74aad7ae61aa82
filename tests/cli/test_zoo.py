"""robust0 zoo on the command line; zoo verify attacks a real, if untrained, network."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from robust0.auditing import chain, proof
from robust0.auditing.finish import rebuild_report
from robust0.cli.app import run
from robust0.data.datasets import open_dataset
from robust0.errors import DataError
from robust0.gate.baseline import read as read_baseline
from robust0.models.build import NetworkSpec, build
from robust0.rng import seeded
from robust0.runs.images import open_audited
from robust0.zoo.cards import read_card
from tests.zoo import conftest as zoo_parts
from tests.zoo.conftest import NAME

ARCH = "test_resnet"  # timm's smallest
made, zoo, serve = zoo_parts.made, zoo_parts.zoo, zoo_parts.serve
place, runs, waits = zoo_parts.place, zoo_parts.runs, zoo_parts.waits


def test_list_and_show_import_no_torch(zoo):
    script = (
        "import sys\n"
        "from robust0.cli.app import run\n"
        "for words in (['list'], ['show', 'toy-fast'], ['pull', 'toy-fast']):\n"
        f"    assert run(['zoo', *words, '--zoo', {str(zoo)!r}]) == 0\n"
        "heavy = {'torch', 'torchvision', 'timm', 'numpy', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_list_as_json(zoo, capsys):
    assert run(["zoo", "list", "--zoo", str(zoo), "--output-format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["id"] == NAME
    assert row["clean"] == 90.0
    assert 0 < row["sAA"] < 90
    assert (row["budget"], row["size"], row["effort"]) == ("3 pixels", "0.7 MB", "quick")


@pytest.mark.parametrize("form", ["rich", "plain"])
def test_list_in_other_forms(zoo, capsys, monkeypatch, form):
    monkeypatch.setenv("COLUMNS", "150")
    assert run(["zoo", "list", "--zoo", str(zoo), "--output-format", form]) == 0
    assert "preact_resnet18_w8" in capsys.readouterr().out


def test_an_empty_zoo(tmp_path, capsys):
    assert run(["zoo", "list", "--zoo", str(tmp_path)]) == 0
    assert run(["zoo", "list", "--zoo", str(tmp_path), "--output-format", "json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == []
    assert "no models" in captured.err


def test_a_bad_card_is_a_warning(zoo, capsys):
    (zoo / "bad.yaml").write_text("x: 1")
    assert run(["zoo", "list", "--zoo", str(zoo)]) == 0
    assert "warning: bad is left out" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["rich", "plain", "tsv"])
def test_show(zoo, capsys, monkeypatch, form):
    monkeypatch.setenv("COLUMNS", "300")
    assert run(["zoo", "show", NAME, "--zoo", str(zoo), "--output-format", form]) == 0
    text = capsys.readouterr().out
    for words in ("robust0 harden --data sample", "battery of 4 attacks, effort quick", "90.0 %",
                  "saa at 3", "2 pixels", "report.json"):  # fmt: skip
        assert words in text
    assert ("━" in text) == (form != "tsv")


def test_show_as_json(zoo, capsys):
    assert run(["zoo", "show", NAME, "--zoo", str(zoo), "--output-format", "json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["card"]["id"] == NAME
    assert values["curve"][0]["budget"] == 0
    assert values["report"].endswith(f"{NAME}.report.json")


def test_pull_prints_the_path_and_nothing_else(serve, capsys):
    base = serve()
    assert run(["zoo", "pull", NAME, "--zoo", base]) == 0
    captured = capsys.readouterr()
    assert Path(captured.out.strip()).is_file()
    assert len(captured.out.splitlines()) == 1
    assert f"fetched {NAME}.safetensors" in captured.err


def test_a_stale_list_is_said_to_be_so(serve, httpserver, waits, capsys):
    base = serve()
    assert run(["zoo", "pull", NAME, "--zoo", base]) == 0
    httpserver.clear()
    assert run(["zoo", "pull", NAME, "--zoo", base]) == 0
    assert "as last seen" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["pull", "toy-fats"], "no model named 'toy-fats'", "close: toy-fast"),
        (["show", "../x"], "is not the id of a model", "zoo list"),
        (["verify", "nothing"], "no model named", "zoo list"),
        (["list", "--zoo", "hf-hub:a/b@main"], "not pinned", "branches move"),
        (["add", "run", "--audit", "audit"], "no ./model_zoo here", "--zoo DIR"),
    ],
)
def test_mistakes_are_two_lines_and_code_2(
    zoo, tmp_path, monkeypatch, capsys, words, message, hint
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROBUST0_ZOO", str(zoo))
    assert run(["zoo", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 2
    assert message in lines[0]
    assert hint in lines[1]


def test_add_writes_into_the_checkouts_zoo(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model_zoo").mkdir()
    words = ["--audit", str(runs[1]), "--id", "mine", "--title", "Mine", "--licence", "CC0-1.0"]
    assert run(["zoo", "add", str(runs[0]), *words]) == 0
    assert capsys.readouterr().out.strip() == "model_zoo/mine.yaml"
    assert (tmp_path / "model_zoo" / "index.yaml").is_file()
    assert run(["zoo", "list", "--zoo", "model_zoo"]) == 0


def test_an_id_is_a_model_to_audit(zoo, monkeypatch, capsys):
    monkeypatch.setenv("ROBUST0_ZOO", str(zoo))
    words = ["--data", "sample", "--images", "16", "--batch-size", "16", "--dry-run"]
    assert run(["audit", NAME, *words]) == 0
    assert NAME in capsys.readouterr().out


# --- verify --------------------------------------------------------------------------------------


IMAGES, SOME = 24, 16


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A small network that has learnt a few embedded images by heart, and a real audit on them."""
    folder = tmp_path_factory.mktemp("audited")
    (folder / "run").mkdir()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with seeded("zoo verify"):
        network = build(NetworkSpec(ARCH, 10, (3, 32, 32), (0.5,) * 3, (0.25,) * 3))
        data = open_dataset("sample", "test").subset(torch.arange(IMAGES))
        images = data.images(torch.arange(IMAGES))
        optimizer = torch.optim.Adam(network.parameters(), 5e-3)
        for _ in range(12):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(images), data.labels).backward()
            optimizer.step()
    zoo_parts.save_model(folder / "run" / "model.safetensors", arch=ARCH, network=network)
    words = ["audit", str(folder / "run" / "model.safetensors"), "--data", "sample", "--images",
             str(IMAGES), "--effort", "smoke", "--attacks", "sparse-rs,sparse-pgd-u", "--eps",
             "30,10", "--batch-size", "16", "-o", str(folder / "audit")]  # fmt: skip
    assert run(words) == 0
    torch.set_num_threads(threads)
    return folder


def publish(audited, folder) -> None:
    words = ["--audit", str(audited / "audit"), "--id", NAME, "--command", "robust0 harden"]
    assert run(["zoo", "add", str(audited / "run"), *words, "--zoo", str(folder)]) == 0


def verify(folder, *words) -> int:
    return run(["zoo", "verify", NAME, "--zoo", str(folder), "--output-format", "json", *words])


@pytest.fixture(autouse=True)
def fewer_images(monkeypatch):
    monkeypatch.setattr("robust0.commands.verify.SAMPLE", SOME)


@pytest.mark.parametrize(("words", "images"), [([], SOME), (["--full"], IMAGES)])
def test_a_claim_that_holds_to_the_last_verdict(audited, tmp_path, capsys, words, images):
    publish(audited, tmp_path / "zoo")
    capsys.readouterr()
    threads = torch.get_num_threads()
    assert verify(tmp_path / "zoo", *words) == 0
    assert torch.get_num_threads() == threads
    captured = capsys.readouterr()
    rows = json.loads(captured.out)
    assert {row["images"] for row in rows} == {images}
    assert {(row["name"], row["budget"]) for row in rows} >= {("clean", 0), ("sparse-rs", 10)}
    assert all(row["lost"] == row["gained"] == 0 for row in rows)
    assert any(row["found"] < rows[0]["found"] for row in rows)
    verdicts = images * 5
    assert f"{verdicts:,} of {verdicts:,} verdicts are the same" in captured.err
    assert f"the claim of {NAME} holds" in captured.err


def test_a_claim_that_does_not_hold(audited, tmp_path, capsys):
    """An audit forged consistently: every hit was taken out and the report folded anew."""
    forged = Path(shutil.copytree(audited, tmp_path / "forged"))
    path = forged / "audit" / "verdicts.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [{k: v for k, v in line.items() if k != chain.LINK} for line in lines
            if "seal" not in line and line.get("budget", 0) in (0, 30)]  # fmt: skip
    kept = [
        line | {"fooled": False, "prediction": line["label"], "margin": abs(line["margin"])}
        if line.get("attack", "clean") != "clean"
        else line
        for line in kept
    ]
    path.write_text("")
    linked = chain.chain_of(path.parent, path)
    path.write_text("".join(linked.line(line) + "\n" for line in kept))
    proof.seal(path.parent)
    rebuild_report(forged / "audit")
    publish(forged, tmp_path / "zoo")
    capsys.readouterr()
    assert verify(tmp_path / "zoo") == 1
    captured = capsys.readouterr()
    assert "does not hold" in captured.err
    assert not all(row["holds"] for row in json.loads(captured.out))


def test_the_embedded_images_stand_in_for_the_first_of_cifar10(audited, tmp_path, monkeypatch):
    publish(audited, tmp_path / "zoo")
    monkeypatch.setenv("ROBUST0_OFFLINE", "1")
    card = read_card(tmp_path / "zoo" / f"{NAME}.yaml", NAME)
    card = card.model_copy(update={"audit": card.audit.model_copy(update={"dataset": "cifar10"})})
    stored = read_baseline(tmp_path / "zoo" / card.verdicts)

    def images(name, stored):
        fingerprint = stored.subject.data_fingerprint
        return open_audited(name, stored.ids, fingerprint, None, lambda event: None)

    data = images(card.audit.dataset, stored)
    assert tuple(data.ids.tolist()) == stored.ids
    other = stored.subject.model_copy(update={"data_fingerprint": "0" * 64})
    stored = stored.model_copy(update={"subject": other})
    with pytest.raises(DataError):
        images(card.audit.dataset, stored)
    with pytest.raises(DataError, match="does not hold the images of the earlier audit"):
        images("sample", stored)


def test_papers_that_contradict_each_other(audited, tmp_path, capsys):
    publish(audited, tmp_path / "zoo")
    path = tmp_path / "zoo" / f"{NAME}.yaml"
    path.write_text(path.read_text().replace("effort: smoke", "effort: paper"))
    assert verify(tmp_path / "zoo") == 1
    captured = capsys.readouterr()
    assert "audit.effort: 'smoke' in the report, 'paper' here" in captured.err
    assert "disagree" in captured.err


def test_an_attack_that_has_changed_since(audited, tmp_path, capsys, monkeypatch):
    from robust0.attacks.sparse_rs import SparseRS

    publish(audited, tmp_path / "zoo")
    monkeypatch.setattr(SparseRS, "revision", 99)
    assert verify(tmp_path / "zoo") == 2
    assert "this robust0 has 99" in capsys.readouterr().err
