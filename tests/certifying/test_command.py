"""The command as its users meet it: numbers, files, exit codes, refusals; on a small classifier."""

import json
import xml.etree.ElementTree as Xml

import pytest
import torch

import robust0
from robust0.auditing.rundata import read_run
from robust0.certificates import votes
from robust0.certifying.rundata import read_certificate_run
from robust0.cli.app import run
from robust0.proofs import CertificateReport
from tests.certifying.conftest import RUN

RULES = ("plurality", "run-off", "soft")


@pytest.fixture(scope="module")
def one(ground):
    """A finished run, tried by attacks."""
    torch.set_num_threads(1)
    assert run([*RUN, "--try", "16", "--every-rule", "-o", "one"]) == 0
    return ground / "one"


@pytest.fixture(scope="module")
def bracketed(ground):
    torch.set_num_threads(1)
    command = [*RUN, "--images", "48", "--try", "0", "--attack", "--effort", "smoke"]
    assert run([*command, "-o", "bracketed"]) == 0
    return ground / "bracketed"


def report(folder):
    return CertificateReport.model_validate_json((folder / "report.json").read_bytes())


@torch.no_grad()
def test_every_rule_is_a_classifier_of_its_own_on_the_same_views(one, toy):
    results = report(one).results
    logits = toy.network.view_logits(toy.images)
    assert tuple(row.name for row in results.classifiers) == RULES
    for row in results.classifiers:
        toy.network.rule = row.name
        found = toy.network.decide(logits)
        right = found.labels == toy.labels
        assert row.clean.count == int(right.sum())
        for point in row.points:
            certified = found.radius >= point.pixels
            assert point.certified.count == int((right & certified).sum())
            assert point.wrong == int((~right & certified).sum())
        assert row.median == max(r for r in range(17) if (right & (found.radius >= r)).sum() >= 48)
    toy.network.rule = "plurality"
    assert len({row.points for row in results.classifiers}) == 3


def test_wrong_answers_that_are_certified_count_for_nobody(one):
    row = report(one).results.headline
    first = row.points[0]
    assert first.wrong > 0
    assert first.certified.count + first.wrong <= 96
    assert first.certified.count <= row.clean.count


def test_certified_accuracy_never_rises_with_the_pixels(one):
    for row in report(one).results.classifiers:
        counts = [row.clean.count, *(point.certified.count for point in row.points)]
        assert counts == sorted(counts, reverse=True)
        assert [point.pixels for point in row.points] == list(range(1, len(row.points) + 1))


def test_every_certificate_that_was_tried_held(one):
    for row in report(one).results.classifiers:
        assert [(t.attack, t.tried, t.broken) for t in row.trials] == [
            ("guided-swap", 16, 0),
            ("sparse-rs", 16, 0),
        ]


def test_a_false_certificate_ends_with_exit_3_and_names_the_image(ground, capfd, monkeypatch):
    honest = votes.plurality
    lie = lambda ballots, classes: votes.CertifiedAnswer(  # noqa: E731
        honest(ballots, classes).labels, honest(ballots, classes).radius + 8
    )
    monkeypatch.setattr(votes, "plurality", lie)
    assert run([*RUN, "--images", "16", "--try", "4", "-o", "lie"]) == 3
    error = capfd.readouterr().err
    results = report(ground / "lie").results
    image = next(i for t in results.headline.trials for i in t.images)
    assert f"image {image} " in error
    assert "no number may be used" in error
    assert "False certificates" in (ground / "lie" / "report.html").read_text()
    assert run(["gate", "lie", "--fail-under", "certified@1=20"]) == 3


def test_the_reports_are_written_and_rebuilt(one, capfd):
    names = ("report.html", "report.md", "report.junit.xml", "report.json")
    before = {name: (one / name).read_bytes() for name in names}
    for name in names:
        (one / name).write_bytes(before[name] + b" ") if name != "report.json" else None
    assert run(["report", "one"]) == 0
    assert {name: (one / name).read_bytes() for name in names} == before
    assert not (one / "parts").exists()


@pytest.mark.parametrize("form", ["plain", "rich", "json", "markdown", "junit"])
def test_the_report_is_printed_in_every_form(one, capfd, form):
    assert run(["report", "one", "--output-format", form]) == 0
    text = capfd.readouterr().out
    share = f"{100 * report(one).results.headline.points[1].certified.share:.1f}"
    if form == "json":
        assert CertificateReport.model_validate_json(text) == report(one)
    elif form == "junit":
        cases = [case.get("name") for case in Xml.fromstring(text).iter("testcase")]
        assert cases.count("certified at 2 pixels") == 3
        assert "sparse-rs within certified radii" in cases
    else:
        assert share in text
        meaning = "proved, for this classifier" if form == "rich" else "Certified means proved"
        assert meaning in text


def test_the_page_needs_nothing_and_escapes_names(one):
    text = (one / "report.html").read_text()
    assert "default-src 'none'" in text
    assert text.count("<script") == text.count("<style") == 1
    assert " style=" not in text
    assert text.count("<svg") == 2
    assert text.count('<img src="data:image/png;base64,') == 24


def test_floors_decide_the_exit_code(ground, capfd):
    quick = [*RUN, "--try", "0", "--images", "48"]
    assert run([*quick, "--fail-under", "certified@2=30", "-o", "floor-0"]) == 0
    assert run([*quick, "--fail-under", "certified@2=99", "-o", "floor-1"]) == 1
    assert "certified at 2 pixels" in capfd.readouterr().err
    assert run([*quick, "--fail-under", "run-off@4=99", "-o", "floor-2"]) == 1
    for floor in ("certified@3=30", "saa=30", "masks-1@1=5"):
        assert run([*quick, "--fail-under", floor, "-o", "floor-3"]) == 2
    assert not (ground / "floor-3").exists()


def test_the_bracket_holds_the_truth(bracketed):
    results = report(bracketed).results
    rows = results.bracket.rows
    assert [row.pixels for row in rows] == [0, 1, 2, 3, 4]
    assert all(row.certified.count <= row.attacked.count for row in rows)
    assert rows[0].certified == rows[0].attacked == results.headline.clean
    assert rows[4].attacked.count < rows[0].attacked.count  # the attacks did something
    assert results.bracket.broken == ()
    assert results.bracket.differing == 0
    assert (bracketed / "bracket.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (bracketed / "bracket.svg").read_bytes()
    assert (bracketed / "report.html").read_text().count("<svg") == 3


def test_an_audit_of_the_same_classifier_gives_the_same_bracket(bracketed, ground):
    assert run([*RUN, "--try", "0", "--audit", "bracketed/audit", "-o", "beside"]) == 0
    assert report(ground / "beside").results.bracket == report(bracketed).results.bracket


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["--images", "40"], "is of other images: 48"),
        (["--factory", "toy_votes:run_off"], "is of another classifier"),
    ],
)
def test_two_different_things_are_refused(bracketed, ground, capfd, changes, words):
    command = [*RUN, "--audit", "bracketed/audit", "-o", "refused", *changes]
    assert run(command) == 2
    assert words in capfd.readouterr().err
    assert not (ground / "refused").exists()


def test_an_audit_that_breaks_a_certificate_ends_with_exit_3(bracketed, ground, capfd):
    lines = (bracketed / "proofs.jsonl").read_text().splitlines()
    hits = read_run(bracketed / "audit").verdicts.values()
    fooled = next(v.image for v in hits if v.fooled and v.attack != "clean")
    made = [json.loads(line) for line in lines]
    for proof in made:
        if proof["image"] == fooled:
            proof["answers"]["plurality"]["radius"] = 9
    from robust0.certifying.bracket import broken
    from robust0.proofs import Proof

    proofs = [Proof.model_validate(proof) for proof in made]
    assert broken("plurality", proofs, read_run(bracketed / "audit")) == (fooled,)


def test_a_plain_network_is_refused_with_what_could_be_certified(ground, capfd):
    command = ("certify", "--factory", "toy_votes:plain", "--data", "npz:toy.npz", "-o", "plain")
    assert run([*command]) == 2
    error = capfd.readouterr().err
    assert "it is a plain network" in error
    assert "votes over views, looks under masks or is smoothed by ablation" in error
    assert not (ground / "plain").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--eps", "0"], "--eps must be whole numbers"),
        (["--eps", "145"], "exceeds the 144 pixels"),
        (["--alpha", "1.5"], "--alpha must lie between 0 and 1"),
        (["--audit", "nowhere"], "holds no audit"),
        (["--audit", "bracketed/audit", "--attack"], "two ways to one bracket"),
        (["--data", "npz:nowhere.npz"], "there is no file"),
    ],
)
def test_what_makes_no_sense_is_refused(bracketed, ground, capfd, options, words):
    assert run([*RUN, *options, "-o", "nonsense"]) == 2
    assert words in capfd.readouterr().err
    assert not (ground / "nonsense").exists()


def test_masks_are_certified_for_each_number_of_pixels(ground, capfd):
    command = ("certify", "--factory", "toy_votes:masks", "--data", "npz:toy.npz")
    options = ("--eps", "1,2,9", "--images", "12", "--try", "4", "-o", "masks")
    assert run([*command, *options]) == 0
    results = report(ground / "masks").results
    assert [row.name for row in results.classifiers] == ["masks-1", "masks-2"]
    first, second = results.classifiers
    assert set(first.radii) <= {0, 1}
    assert set(second.radii) <= {0, 2}
    assert first.points[0].certified.count + first.points[0].wrong > 0


def test_ablation_says_how_often_it_is_wrong(ground, capfd):
    command = ("certify", "--factory", "toy_votes:ablating", "--data", "npz:toy.npz")
    options = ("--eps", "1", "--images", "8", "--samples", "150", "--choose", "30")
    assert run([*command, *options, "--alpha", "0.01", "-o", "ablation"]) == 0
    results = report(ground / "ablation").results
    assert results.settings.expected_false == pytest.approx(0.08)
    assert results.settings.tried == 0  # the smoothed classifier cannot be attacked
    assert "at most 0.08 of all images" in capfd.readouterr().out
    proofs = read_certificate_run(ground / "ablation").proofs
    assert sum(proof.answers["ablation"].label is None for proof in proofs) == (
        results.headline.abstained
    )
    assert run([*command, *options, "--attack", "-o", "ablation-bracket"]) == 2
    assert not (ground / "ablation-bracket").exists()


def test_python_certifies_without_files(toy, one):
    events = []
    made = robust0.certify(toy.network, toy.images, toy.labels, (1, 2, 4), progress=events.append)
    told = report(one).results
    for mine, its in zip(made.results.classifiers, told.classifiers, strict=True):
        assert (mine.points, mine.clean, mine.radii) == (its.points, its.clean, its.radii)
    assert (events[-1].report.results, events[-1].report.run) == (made.results, made.run)
    assert [proof.image for proof in made.proofs] == list(range(96))
    lines = repr(made).splitlines()
    assert len(lines) == 6  # what it is, clean and three budgets, not the whole document
    assert lines[-1].split()[:3] == ["certified", "at", "4"]
    assert f"{made.results.headline.points[3].certified.share:.1%}" in lines[-1]
    assert str(made) == repr(made)


def test_a_run_that_does_not_add_up_is_refused(one, ground, capfd):
    import shutil

    shutil.copytree(one, ground / "forged")
    lines = (ground / "forged" / "proofs.jsonl").read_text().replace('"radius":3', '"radius":5')
    (ground / "forged" / "proofs.jsonl").write_text(lines)
    assert run(["gate", "forged", "--fail-under", "certified@1=20"]) == 2
    assert "do not follow from the proofs" in capfd.readouterr().err


def test_by_default_the_headline_alone_is_tried(ground):
    assert run([*RUN, "--images", "16", "-o", "default"]) == 0
    tried = {row.name: len(row.trials) for row in report(ground / "default").results.classifiers}
    assert tried == {"plurality": 2, "run-off": 0, "soft": 0}
