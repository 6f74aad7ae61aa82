import json
import math

import numpy as np
import pytest

from robust0.auditing.rundata import read_run
from robust0.errors import RunError
from robust0.gate import baseline as baselines
from robust0.gate.baseline import Baseline, kept_attempts, of_run
from robust0.records import CLEAN
from tests.auditing.factory_report import Recipe, make_run


@pytest.fixture
def run(tmp_path):
    return read_run(make_run(tmp_path / "run", Recipe(budgets=(4, 2))))


def test_bits_are_the_verdicts(run):
    made = of_run(run)
    for row, image in enumerate(made.ids):
        right = not run.verdicts[0, CLEAN, image].fooled
        assert made.clean[row] == str(int(right))
        for entry in made.budgets:
            for attack, bits in entry.robust.items():
                found = [run.verdicts.get((b.budget, attack, image)) for b in made.budgets]
                fooled = any(v and v.fooled and v.needed <= entry.budget for v in found)
                assert bits[row] == str(int(right and not fooled))


def test_unions_are_the_reports_ensembles(run):
    made = of_run(run)
    for result, entry in zip(run.report.results.budgets, made.budgets, strict=True):
        for row in result.ensembles:
            assert entry.union(row.name).count("1") == row.robust.count


def test_a_written_baseline_comes_back_equal(run, tmp_path):
    made = of_run(run, attempts=1000)
    path = tmp_path / "new folder" / "baseline.json"
    baselines.write(path, made)
    assert baselines.read(path) == made
    assert json.loads(path.read_text())["schema"] == 2
    Baseline.model_validate_json(path.read_bytes())


def test_stored_values_are_the_same_float32(tmp_path):
    recipe = Recipe()
    folder = make_run(tmp_path / "run", recipe)
    run = read_run(folder)
    for attempt in run.attempts.found.values():
        draw = np.random.default_rng(len(attempt.places))
        attempt.values[:] = draw.random(attempt.values.shape, dtype=np.float32)
    for stored in of_run(run, attempts=1000).attempts:
        kept = run.attempts.found[stored.budget, stored.attack, stored.image]
        assert np.array_equal(np.array(stored.values, dtype=np.float32), kept.values)
        assert list(stored.places) == kept.places.tolist()


def test_attempts_are_the_lowest_margins_per_image_survivors_first(run):
    everything = kept_attempts(run, 10_000)
    images = [verdict.image for _, verdict in everything]
    assert len(images) == len(set(images)) == 36  # 4 of 40 are wrong when clean
    fooled = [verdict.fooled for _, verdict in everything]
    assert fooled == sorted(fooled)
    for kind in (False, True):
        margins = [v.margin for _, v in everything if v.fooled is kind]
        assert margins == sorted(margins)
        assert margins
    for _, verdict in everything:
        others = [v.margin for (b, a, i), v in run.verdicts.items()
                  if i == verdict.image and b == 4 and a != CLEAN]  # fmt: skip
        assert verdict.margin == min(others)


@pytest.mark.parametrize("most", [1, 2, 7, 20, 30])
def test_few_places_are_shared(run, most):
    survivors = sum(not v.fooled for _, v in kept_attempts(run, 10_000))
    hits = 36 - survivors
    kept = kept_attempts(run, most)
    assert len(kept) == most
    assert sum(v.fooled for _, v in kept) >= min(hits, most // 2)
    assert sum(not v.fooled for _, v in kept) >= min(survivors, most // 2)


def test_survivors_are_right_under_every_attack(run):
    made = of_run(run)
    survived = made.survived()
    assert sum(survived.values()) == made.budgets[0].union("worst-case").count("1")


def test_a_report_that_contradicts_its_verdicts_is_refused(run):
    path = run.folder / "report.json"
    document = json.loads(path.read_text())
    row = document["results"]["budgets"][0]["ensembles"][0]["robust"]
    row["count"] += 1
    path.write_text(json.dumps(document))
    with pytest.raises(RunError, match="the verdicts say"):
        of_run(read_run(run.folder))


def changed(document, path, value):
    target = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("clean",), "01", "one entry per image"),
        (("clean",), "2" * 40, "clean"),
        (("labels",), [1], "one entry per image"),
        (("ids",), [100] * 40, "twice"),
        (("budgets",), [], "budgets"),
        (("budgets", 0, "robust"), {}, "not those listed"),
        (("budgets", 0, "ensembles", "saa"), ["nobody"], "not those listed"),
        (("attempts", 0, "image"), 7, "not in ids"),
        (("attempts", 0, "values"), [[0.0]], "one row per place"),
        (("attempts", 0, "values", 0, 0), 1.5, "less than or equal to 1"),
        (("attempts", 0, "margin"), math.inf, "finite"),
        (("attempts", 0, "places", 0), -1, "greater than or equal to 0"),
        (("surprise",), 1, "surprise"),
        (("schema",), 9, "schema 9, expected 2"),
        (("kind",), "report", "not a baseline"),
    ],
)
def test_a_damaged_baseline_is_refused(run, tmp_path, path, value, message):
    file = tmp_path / "baseline.json"
    baselines.write(file, of_run(run, attempts=5))
    document = changed(json.loads(file.read_text()), path, value)
    file.write_text(json.dumps(document))
    with pytest.raises(RunError, match=message):
        baselines.read(file)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{", b"[" * 100_000, b"null"])
def test_what_is_no_json_object_is_refused(tmp_path, content):
    file = tmp_path / "baseline.json"
    file.write_bytes(content)
    with pytest.raises(RunError):
        baselines.read(file)


def test_a_missing_baseline_says_how_to_make_one(tmp_path):
    with pytest.raises(RunError) as refusal:
        baselines.read(tmp_path / "baseline.json")
    assert "--write-baseline" in refusal.value.hint


def test_an_unwritable_place_is_refused(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        baselines.write(tmp_path / "file" / "baseline.json", of_run(run))


def test_only_a_baseline_is_replaced(run, tmp_path):
    path = tmp_path / "baseline.json"
    baselines.write(path, of_run(run))
    baselines.write(path, of_run(run, attempts=3))
    assert len(baselines.read(path).attempts) == 3
    before = (run.folder / "report.json").read_bytes()
    with pytest.raises(RunError, match="not a baseline"):
        baselines.write(run.folder / "report.json", of_run(run))
    assert (run.folder / "report.json").read_bytes() == before
    with pytest.raises(RunError):
        baselines.write(run.folder, of_run(run))
