import json
import shutil

import pytest

from robust0 import upgrades
from robust0.commands import zoo_add as adding
from robust0.commands.zoo_add import Publication, add
from robust0.errors import ModelError, RunError, ZooError
from robust0.gate.baseline import read as read_baseline
from robust0.records import Flag, Report
from robust0.zoo.cards import Index, read_card
from robust0.zoo.documents import read_json, read_yaml
from tests.zoo.conftest import COMMAND, NAME, digest_of, fake_audit, save_model


def test_what_is_written(made):
    zoo = made / "zoo"
    ends = ("yaml", "safetensors", "report.json", "verdicts.json")
    expected = {"index.yaml", *(f"{NAME}.{end}" for end in ends)}
    assert {path.name for path in zoo.iterdir()} == expected
    card = read_card(zoo / f"{NAME}.yaml", NAME)
    assert card.sha256 == digest_of(zoo / f"{NAME}.safetensors")
    assert card.size == (zoo / f"{NAME}.safetensors").stat().st_size
    assert (card.dataset, card.method, card.epochs, card.seed) == ("sample", "fast-ls-l0", 7, 3)
    assert (card.train_budget.amount, card.eval_budget.amount) == (18, 3)
    assert card.arch_args["num_classes"] == 10
    assert card.audit.images == 40
    assert [row.name for row in card.audit.robust][-2:] == ["saa", "worst-case"]


def test_no_folder_of_the_makers_machine_is_published(made):
    zoo = made / "zoo"
    card = read_card(zoo / f"{NAME}.yaml", NAME)
    assert card.training_command == "robust0 harden --data sample -o run"
    report = read_json(zoo / card.report, Report, upgrades.report)
    assert report.run.command == ("robust0", "audit", NAME, *COMMAND[3:-1], "a")
    assert report.results.subject.model == NAME
    for path in zoo.glob("*.json"):
        assert "/home/me" not in path.read_text()
        assert "runs/x" not in path.read_text()


def test_the_rest_of_the_report_is_as_the_audit_wrote_it(made):
    before = json.loads((made / "audit" / "report.json").read_text())
    after = json.loads((made / "zoo" / f"{NAME}.report.json").read_text())
    for document in (before, after):
        document["results"]["subject"].pop("model")
        document["run"].pop("command")
    assert before == after


def test_the_verdicts_are_a_baseline(made):
    baseline = read_baseline(made / "zoo" / f"{NAME}.verdicts.json")
    report = read_json(made / "zoo" / f"{NAME}.report.json", Report, upgrades.report)
    assert baseline.clean.count("1") == report.results.clean.count
    assert baseline.subject == report.results.subject


def test_ids_titles_and_commands_of_the_user(runs, tmp_path):
    said = Publication(title="A title", licence="CC0-1.0", command="robust0 harden --epochs 3")
    card = add(*runs, tmp_path / "z", said)
    assert card.id == "sample-fast-ls-l0-preact_resnet18_w8"
    assert (card.title, card.licence) == ("A title", "CC0-1.0")
    assert card.training_command == "robust0 harden --epochs 3"
    add(*runs, tmp_path / "z", Publication(id="second"))
    assert set(read_yaml(tmp_path / "z" / "index.yaml", Index).cards) == {card.id, "second"}


def refused(runs, target, words, said=None, error=ZooError):
    with pytest.raises(error, match=words) as refusal:
        add(*runs, target, said or Publication(id="x"))
    assert not target.exists()
    return refusal.value


def test_large_weights_need_another_place(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(adding, "MOST_BYTES", 1000)
    assert "--external" in refused(runs, tmp_path / "z", "at most 1,000 may lie").hint
    for url in ("http://example.org/x.safetensors", "x.safetensors"):
        refused(runs, tmp_path / "z", "is not an https", Publication(id="x", external=url))
    url = "https://example.org/x.safetensors"
    card = add(*runs, tmp_path / "z", Publication(id="x", external=url))
    assert card.source == url
    assert not (tmp_path / "z" / "x.safetensors").exists()


def test_an_id_that_is_taken_or_none(runs, zoo, tmp_path):
    with pytest.raises(ZooError, match="already has"):
        add(*runs, zoo, Publication(id=NAME))
    for name in ("../x", "index", "A"):
        refused(runs, tmp_path / "z", "cannot be an id", Publication(id=name))


def test_an_audit_of_another_model(runs, tmp_path):
    save_model(runs[0] / "model.safetensors", seed=4)
    assert "robust0 audit" in refused(runs, tmp_path / "z", "is not about").hint


def test_an_audit_that_misleads(runs, tmp_path):
    flag = Flag(name="randomised", fatal=True, message="two answers")
    digest = digest_of(runs[0] / "model.safetensors")
    shutil.rmtree(runs[1])
    fake_audit(runs[1], digest, flags=(flag,))
    refused(runs, tmp_path / "z", "not reliable: randomised")


def test_a_report_that_does_not_follow_from_its_verdicts(runs, tmp_path):
    path = runs[1] / "report.json"
    document = json.loads(path.read_text())
    document["results"]["clean"]["count"] += 1
    path.write_text(json.dumps(document))
    refused(runs, tmp_path / "z", "the verdicts say", error=RunError)


def test_a_run_that_forgot_its_command(runs, tmp_path):
    for text in ("{}", "[]", "{"):
        (runs[0] / "options.json").write_text(text)
        assert "--command" in refused(runs, tmp_path / "z", "does not remember").hint


@pytest.mark.parametrize("missing", ["method", "epochs", "eval_budget"])
def test_a_checkpoint_that_says_too_little(tmp_path, missing, runs):
    digest = save_model(runs[0] / "model.safetensors", **{missing: None})
    shutil.rmtree(runs[1])
    fake_audit(runs[1], digest)
    refused(runs, tmp_path / "z", f"does not say its {missing}")


def test_folders_that_are_no_runs(runs, tmp_path):
    refused((tmp_path, runs[1]), tmp_path / "z", r"has no model\.safetensors")
    refused((runs[0], tmp_path / "no"), tmp_path / "z", "no run directory", error=RunError)
    (runs[0] / "model.safetensors").write_bytes(b"PK\x03\x04" * 10)
    refused(runs, tmp_path / "z", "pickle", error=ModelError)


def test_a_zoo_that_cannot_be_written(runs, tmp_path):
    (tmp_path / "z").write_text("")
    with pytest.raises(ZooError, match="cannot write"):
        add(*runs, tmp_path / "z", Publication(id="x"))
