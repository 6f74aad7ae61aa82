"""Audits and certificates side by side: the numbers, what is said beside them, what is refused."""

import csv
import io
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from robust0.cli.app import run
from robust0.commands.compare import compare_sources
from robust0.comparison import signed
from robust0.errors import RunError
from robust0.gate.certified import read_certificate_baseline, write_certificate_baseline
from robust0.records import Flag
from robust0.resources import shipped
from robust0.zoo.fetch import find_card
from tests.auditing.factory_report import Recipe, clean_pixels, make_run

FIRST = Recipe(breaks=lambda image, attack, budget: image % 4 == 0)
SECOND = Recipe(breaks=lambda image, attack, budget: image % 5 == 0, model="other.safetensors")
LOW, HIGH = -13.633326603733536, 23.178911660102994
VOTES = "cifar10-votes25-e120", "cifar10-votes64-e80"


def compared(*sources):
    return compare_sources([str(source) for source in sources], lambda _: None).results


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pair(place):
    return make_run(place / "one", FIRST), make_run(place / "two", SECOND)


def row(results, name, budget=3):
    return next(r for r in results.rows if (r.name, r.budget) == (name, budget))


def test_the_paired_difference_is_the_one_computed_by_hand(pair):
    """Right when clean: 104 to 139. The first loses multiples of 4, the second those of 5."""
    results = compared(*pair)
    worst = row(results, "worst-case")
    assert results.main == worst
    assert [share.count for share in worst.shares] == [27, 29]
    (found,) = worst.pairs
    assert found.only_first == (105, 110, 115, 125, 130, 135)
    assert found.only_other == (104, 108, 112, 116, 124, 128, 132, 136)
    assert found.difference == pytest.approx(5.0)
    # Newcombe's method 10 with both 21, only A 6, only B 8, neither 5.
    assert (found.low, found.high) == pytest.approx((LOW, HIGH), abs=1e-6)
    assert [image.image for image in results.separating if image.survivors == "A"] == [
        *found.only_first
    ]
    assert results.separating[0].name == ("ant", "bee", "cat")[4 % 3]
    assert row(results, "clean", 0).pairs[0].difference == 0
    assert results.verdicts == (
        "A and B: no difference shown: worst-case at 3 pixels 67.5 -> 72.5 %, +5.0 points (95 %: "
        f"{signed(LOW)} to {signed(HIGH)}; 40 images, 6 survive only in A, 8 only in B)",
    )


def test_swapping_the_sides_negates_every_difference(pair):
    there, back = compared(*pair), compared(*reversed(pair))
    assert any(r.pairs[0].difference for r in there.rows)
    for one, other in zip(there.rows, back.rows, strict=True):
        a, b = one.pairs[0], other.pairs[0]
        assert (a.difference, a.low, a.high) == pytest.approx((-b.difference, -b.high, -b.low))
        assert (a.only_first, a.only_other) == (b.only_other, b.only_first)
        assert one.shares == other.shares[::-1]
    assert {i.survivors for i in there.separating} == {"A", "B"}


def test_several_are_each_set_against_the_first(place, pair):
    bad = make_run(
        place / "bad", replace(FIRST, breaks=lambda image, attack, budget: image % 8 > 0)
    )
    results = compared(*pair, bad)
    assert [pair.letter for pair in results.main.pairs] == ["B", "C"]
    assert [pair.sign for pair in results.main.pairs] == [0, -1]
    assert results.verdicts[1].startswith("C is worse than A: worst-case at 3 pixels 67.5 -> ")
    assert compared(bad, pair[0]).verdicts[0].startswith("B is better than A")
    assert {image.survivors for image in results.separating} == {"A", "B", "AB", "BC", "C"}
    seeded = compared(*pair, make_run(place / "seeded", replace(SECOND, seed=4)))
    assert seeded.caveats == ("C: seed 0 -> 4",)
    assert ["searches differ" in line for line in seeded.verdicts] == [False, True]
    with pytest.raises(RunError, match="too many"):
        compared(*[pair[0]] * 9)
    with pytest.raises(RunError, match="nothing to compare it with"):
        compared(pair[0])


def test_rows_are_those_of_the_reports(place, pair):
    wide = [replace(recipe, budgets=(5, 3)) for recipe in (FIRST, SECOND)]
    paths = [make_run(place / f"wide{n}", recipe) for n, recipe in enumerate(wide)]
    results = compared(*paths)
    titles = [r.title(results.unit) for r in results.rows]
    assert titles[0] == "clean"
    assert titles[1] == "sparse-pgd-p at 5 pixels"
    assert titles[5:7] == ["sAA at 5 pixels", "worst-case at 5 pixels"]
    assert len(titles) == 1 + 2 * 6
    assert results.main.budget == 5
    for letter, path in zip("AB", paths, strict=True):
        told = json.loads((path / "report.json").read_text())["results"]
        place_of = "AB".index(letter)
        for result in told["budgets"]:
            for one in (*result["attacks"], *result["ensembles"]):
                mine = row(results, one["name"], result["budget"]).shares[place_of]
                assert mine.model_dump() == one["robust"]
        assert [p.model_dump() for p in results.curves[place_of].points] == told["curve"]
    some = compared(paths[0], pair[1])
    assert {r.budget for r in some.rows} == {0, 3}
    assert "left out: A at 5" in some.notes


def test_only_common_images_and_attacks_count_and_this_is_said(place, pair):
    pixels, labels = clean_pixels(FIRST)
    fewer = replace(
        SECOND, images=30, pixels=pixels[:30], labels=labels[:30], fingerprint="ee" * 32,
        attacks=("sparse-rs", "guided-swap"),
    )  # fmt: skip
    results = compared(pair[0], make_run(place / "fewer", fewer))
    assert results.images == 30
    assert [r.name for r in results.rows] == ["clean", "sparse-rs", "guided-swap", "worst-case"]
    assert all(share.images == 30 for r in results.rows for share in r.shares)
    assert results.curves[0].points[-1].robust.images == 30
    assert results.curves[0].points[-1].robust == results.main.shares[0]
    assert results.notes[:2] == (
        "compared on the 30 images that all have: A has 40, B has 30",
        "left out: A under sparse-pgd-p, sparse-pgd-u; the worst case is over the 2 common attacks",
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, "seed 0 -> 1"),
        ({"effort": "paper", "steps": 7}, "effort quick -> paper"),
        ({"revision": 2}, "sparse-pgd-p revision 1 -> 2"),
        ({"steps": 7}, "sparse-pgd-p steps 100 -> 7"),
        ({"mode": "cascade"}, "mode battery -> cascade"),
    ],
)
def test_other_searches_are_compared_and_this_is_said_in_the_verdict(place, pair, changes, words):
    results = compared(pair[0], make_run(place / "other", replace(SECOND, **changes)))
    assert f"(the searches differ: {words}" in results.verdicts[0]
    assert (len(results.caveats) == 1) is not ({"revision", "steps"} >= set(changes))
    if "mode" in changes:  # an attack has no accuracy of its own in a cascade
        assert {r.kind for r in results.rows} == {"clean", "ensemble"}


def test_doubtful_numbers_are_compared_and_called_so(place, pair):
    flag = Flag(name="constant-output", fatal=True, message="always class 0")
    results = compared(pair[0], make_run(place / "doubtful", replace(SECOND, flags=(flag,))))
    assert "B is unreliable: constant-output)" in results.verdicts[0]


def test_a_baseline_says_as_much_as_its_run(pair, capsys):
    assert run(["gate", str(pair[1]), "--write-baseline", "two.json"]) == 0
    whole, stored = compared(*pair), compared(pair[0], "two.json")
    assert stored.rows == whole.rows
    assert [point.budget for point in stored.curves[1].points] == [0, 3]
    assert stored.curves[1].points[-1] == whole.curves[1].points[-1]
    assert run(["compare", str(pair[0] / "report.json"), "two.json"]) == 0


def refusal(capsys, *words):
    assert run(["compare", *(str(word) for word in words)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    error, hint = said.err.strip().splitlines()[-2:]
    assert hint.startswith("hint: ")
    return f"{error}\n{hint}"


def test_what_does_not_compare_is_refused(place, pair, capsys):
    def other(name, **changes):
        return make_run(place / name, replace(SECOND, **changes))

    assert "counts features" in refusal(capsys, pair[0], other("unit", unit="feature"))
    said = refusal(capsys, pair[0], other("budget", budgets=(4,)))
    assert "no budget in common" in said
    assert "no image in common" in refusal(capsys, pair[0], other("ids", first_id=500))
    lone = other("lone", attacks=("mine",))
    assert "no attack in common" in refusal(capsys, pair[0], lone)
    pixels, labels = clean_pixels(SECOND)
    changed = np.where(np.arange(40)[:, None, None, None] == 7, 255 - pixels, pixels)
    changed = {"pixels": changed, "labels": labels, "fingerprint": "ee" * 32}
    said = refusal(capsys, pair[0], other("pixels", **changed))
    assert "of 40 common ids 1 have other pixels" in said
    moved = {"pixels": pixels, "labels": (labels + 1) % 3, "fingerprint": "ee" * 32}
    assert "40 of 40 common ids have other labels" in refusal(capsys, pair[0], other("l", **moved))
    unseen = other("unseen", fingerprint="ee" * 32)
    assert run(["compare", str(pair[0]), str(unseen)]) == 0  # the images themselves agree
    assert run(["gate", str(unseen), "--write-baseline", "unseen.json"]) == 0
    capsys.readouterr()
    assert "nothing shows that" in refusal(capsys, pair[0], "unseen.json")
    assert "an upper and a lower bound do not compare" in refusal(
        capsys, pair[0], shipped("model_zoo") / f"{VOTES[0]}.radii.json"
    )


def test_what_is_no_evaluation_is_refused(place, pair, capsys):
    (place / "net.safetensors").write_bytes(b"")
    said = refusal(capsys, pair[0], "net.safetensors")
    assert said.endswith("robust0 audit net.safetensors -o net-audit")
    (place / "trained").mkdir()
    (place / "trained" / "model.safetensors").write_bytes(b"")
    assert "robust0 audit trained -o trained-audit" in refusal(capsys, "trained", pair[0])
    (place / "empty").mkdir()
    assert "neither an audit nor a certificate" in refusal(capsys, "empty", pair[0])
    assert "there is no 'runs/none'" in refusal(capsys, "runs/none", pair[0])
    assert "no model named" in refusal(capsys, "cifar10-w8-e4-fast-ls-l1", pair[0])
    report = shipped("model_zoo") / f"{VOTES[0]}.report.json"
    assert "a report without its run" in refusal(capsys, report, pair[0])
    (place / "list.json").write_text("[1]")
    assert "nothing that compares" in refusal(capsys, "list.json", pair[0])
    (place / "torn.json").write_text("{")
    assert "cannot be read" in refusal(capsys, "torn.json", pair[0])


def test_an_edited_run_is_refused(pair, capsys):
    path = pair[1] / "report.json"
    document = json.loads(path.read_text())
    document["results"]["clean"]["count"] += 1
    path.write_text(json.dumps(document))
    assert "does not follow from its run" in refusal(capsys, *pair)


def test_forms(pair, capsys):
    words = ["compare", str(pair[0]), str(pair[1]), "--output-format"]
    assert run([*words, "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["of"], document["images"]) == (
        "robust0-comparison", "audit", 40,
    )  # fmt: skip
    assert document["verdicts"] == list(compared(*pair).verdicts)
    assert run([*words, "tsv"]) == 0
    lines = list(csv.reader(io.StringIO(capsys.readouterr().out), delimiter="\t"))
    assert lines[0][:5] == ["kind", "name", "budget", "subject", "accuracy %"]
    (found,) = (line for line in lines if line[1:4] == ["worst-case", "3", "B"])
    assert found[4] == "72.50"
    assert found[8:] == ["5.00", "-13.63", "23.18", "6", "8"]
    assert [line[1] for line in lines if line[0] == "image" and line[-1] == "A"] == [
        "105", "110", "115", "125", "130", "135",
    ]  # fmt: skip


@pytest.mark.parametrize("columns", ["160", "100", "60", "40"])
@pytest.mark.parametrize("form", ["rich", "plain"])
def test_the_terminal_keeps_to_its_width(pair, capsys, monkeypatch, columns, form):
    monkeypatch.setenv("COLUMNS", columns)
    assert run(["compare", str(pair[0]), str(pair[1]), "--output-format", form]) == 0
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= int(columns)
    flat = " ".join(shown.split())
    assert "+5.0" in flat
    assert "only A (6): 105 cat, 110 bee" in flat
    assert flat.endswith("6 survive only in A, 8 only in B)")


def test_certificates_of_the_zoo_at_every_radius(capsys):
    results = compared(*VOTES)
    radii = [r.budget for r in results.rows if r.name == "certified"]
    assert radii == [1, 2, 5, 10, 13, 20]
    assert results.main.budget == 10  # the largest that both were asked about
    stored = [
        read_certificate_baseline(shipped("model_zoo") / f"{name}.radii.json") for name in VOTES
    ]
    for place, base in enumerate(stored):
        own = base.radii[base.settings.headline]
        for r in results.rows:
            if r.name == "certified":
                assert r.shares[place].count == sum(radius >= r.budget for radius in own)
        counts = [point.robust.count for point in results.curves[place].points]
        assert all(a >= b for a, b in pairwise(counts))
        assert counts[10] == sum(radius >= 10 for radius in own)
    assert {r.name for r in results.rows} == {"clean", "certified", "plurality", "soft"}
    assert results.separating[0].title.isalpha(), "the card's audit knows the names of classes"
    assert run(["compare", *VOTES]) == 0
    proved = [find_card(name, None).card.certificate.certified for name in VOTES]
    first, other = ([s.percent for s in p if (s.name, s.budget) == ("run-off", 10)] for p in proved)
    said = " ".join(capsys.readouterr().out.split())
    assert f"certified at 10 pixels {first[0]} -> {other[0]} %" in said


def test_a_part_of_the_same_dataset_is_shown_by_the_dataset(place):
    """100 images against 1,000: no fingerprint agrees, but CIFAR-10's first images hold both."""
    base = read_certificate_baseline(shipped("model_zoo") / "cifar10-masks9-e5.radii.json")
    first_100 = "6b0f41d59f4f9097a11abe5a9d343415a51f13eae2ff839e0df2f837e938b66d"  # of test images
    ids_of = "3aab9a67460ed56a43667fd52a997d2b01e90e52589c44b1f138c7b6fb4a1c4d"

    def write(name, fingerprint):
        subject = base.subject.model_copy(
            update={"data_fingerprint": fingerprint, "image_ids": ids_of, "images": 100}
        )
        radii = {rule: found[:100] for rule, found in base.radii.items()}
        parts = {"ids": base.ids[:100], "labels": base.labels[:100], "radii": radii}
        write_certificate_baseline(
            place / name, base.model_copy(update={"subject": subject, **parts})
        )

    write("a.json", first_100)
    results = compared("a.json", VOTES[0])
    assert results.images == 100
    assert results.caveats == ("kind masks -> partition-vote", "rule masks-1 -> run-off")
    write("b.json", "0" * 64)
    with pytest.raises(RunError, match="nothing shows"):
        compared("b.json", VOTES[0])
