"""A card with a certificate: published, listed, shown, proved again, and caught when it lies."""

import hashlib
import json

import pytest
import yaml

from robust0.cli.app import run
from robust0.cli.zoo_certified import certified_again
from robust0.commands.zoo_add import Publication, add, write_index
from robust0.errors import ZooError
from robust0.gate.certified import read_certificate_baseline
from robust0.models.build import NetworkSpec, build
from robust0.models.checkpoint import Budget, Metadata, save_checkpoint
from robust0.models.classifiers import PartitionVoteNotes
from robust0.proofs import CertificateReport
from robust0.zoo.fetch import find_card
from tests.zoo.conftest import fake_audit

NAME = "toy-votes"


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    """A zoo with one voting model, its certificate computed on the embedded images."""
    folder = tmp_path_factory.mktemp("proved")
    notes = PartitionVoteNotes(stride=8)
    spec = NetworkSpec(
        "preact_resnet18_w8",
        10,
        notes.inner_size((3, 32, 32)),
        (0.4,) * 3 + (0.0,),
        (0.2,) * 3 + (1.0,),
    )
    facts = {
        "input_size": (3, 32, 32), "mean": (0.4,) * 3, "std": (0.2,) * 3, "dataset": "sample",
        "variant": "official", "method": "fast-ls-l0", "epochs": 7, "seed": 3, "recipe": "ab" * 32,
        "train_budget": Budget(unit="pixel", amount=18), "classifier": notes,
        "eval_budget": Budget(unit="pixel", amount=3),
    }  # fmt: skip
    model = folder / "run" / "model.safetensors"
    voting = notes.wrap(build(spec), (3, 32, 32), 10)
    digest = save_checkpoint(model, voting, Metadata.of(spec, **facts))
    command = ["robust0", "harden", "--data", "sample"]
    (folder / "run" / "options.json").write_text(json.dumps({"command": command}))
    options = ("--data", "sample", "--images", "20", "--try", "0", "--eps", "1,3")
    assert run(["certify", str(model), *options, "-o", str(folder / "proof")]) == 0
    fake_audit(folder / "audit", digest)
    said = Publication(id=NAME, certificate=folder / "proof")
    add(folder / "run", folder / "audit", folder / "zoo", said)
    return folder


def test_the_card_says_what_the_certificate_says(proved):
    report = CertificateReport.model_validate_json((proved / "proof/report.json").read_bytes())
    claim = find_card(NAME, str(proved / "zoo")).card.certificate
    headline = report.results.headline
    assert [row.budget for row in claim.headline_scores] == [1, 3]
    for row in claim.headline_scores:
        assert row.percent == pytest.approx(100 * headline.at(row.budget).share, abs=0.05)
    radii = read_certificate_baseline(proved / "zoo" / claim.radii)
    assert radii.subject.model == NAME
    assert str(proved) not in (proved / "zoo" / claim.radii).read_text()


def test_list_and_show_name_it(proved, capfd):
    assert run(["zoo", "list", "--zoo", str(proved / "zoo"), "--output-format", "json"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    shown = find_card(NAME, str(proved / "zoo")).card.certificate.at(3).percent
    assert row["certified"] == f"{shown} (20)"  # at the audit's budget
    assert run(["zoo", "show", NAME, "--zoo", str(proved / "zoo")]) == 0
    text = capfd.readouterr().out
    assert "partition-vote, plurality, 20 images of sample" in text
    assert "plurality certified at 3" in text


def test_proving_again_gives_the_same_radii(proved):
    found = find_card(NAME, str(proved / "zoo"))
    weights = proved / "run" / "model.safetensors"
    result = certified_again(found, weights, full=True, device="cpu", data_dir=None)
    assert result.holds
    assert result.differing == 0
    assert result.verdicts == 3 * 20


def forged(proved, tmp_path, change):
    """A zoo whose radii were changed, with hashes that fit."""
    import shutil

    zoo = tmp_path / "forged"
    shutil.copytree(proved / "zoo", zoo)
    radii, path = zoo / f"{NAME}.radii.json", zoo / f"{NAME}.yaml"
    document = json.loads(radii.read_text())
    change(document)
    radii.write_text(json.dumps(document))
    card = yaml.safe_load(path.read_text())
    card["certificate"]["radii_sha256"] = hashlib.sha256(radii.read_bytes()).hexdigest()
    path.write_text(yaml.safe_dump(card, sort_keys=False))
    write_index(zoo)
    return find_card(NAME, str(zoo))


def test_radii_that_do_not_fit_the_card_are_caught(proved, tmp_path):
    def change(document):
        document["radii"]["plurality"] = [9] * 20

    found = forged(proved, tmp_path, change)
    weights = proved / "run" / "model.safetensors"
    problems = certified_again(found, weights, full=True, device="cpu", data_dir=None)
    assert any("another certified" in problem for problem in problems)


def test_a_certificate_of_other_weights_is_refused(proved, tmp_path, made):
    said = Publication(id="x", certificate=proved / "proof")
    with pytest.raises(ZooError, match="is not about"):
        add(made / "run", made / "audit", tmp_path / "z", said)
    assert not (tmp_path / "z").exists()


def test_an_audit_of_votes_can_be_repeated_with_its_own_batch_size(proved, tmp_path, capfd):
    """Votes are asked for in smaller calls than plain logits; verify says their size again."""
    model = str(proved / "run" / "model.safetensors")
    options = ("--data", "sample", "--images", "2", "--eps", "1", "--dry-run")
    wanted = [model, *options, "--attacks", "guided-swap", "--effort", "smoke"]
    assert run(["audit", *wanted]) == 0
    assert "4 images per call" in capfd.readouterr().out.replace("\n", " ")
    assert run(["audit", *wanted, "--batch-size", "4"]) == 0
    assert run(["audit", *wanted, "--batch-size", "3"]) == 2
