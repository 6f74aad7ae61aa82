import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from robust0.auditing.rundata import read_report, read_run
from robust0.errors import RunError
from robust0.records import CLEAN
from tests.auditing.factory_report import Recipe, make_run


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "a run ü")


def test_everything_written_is_read(folder):
    run = read_run(folder)
    assert run.report.results.subject.images == len(run.images) == 40
    assert run.images[0] == 100
    assert sum(1 for v in run.verdicts.values() if v.attack == CLEAN) == 40
    assert run.clean.images.shape == (40, 3, 8, 8)
    assert set(run.attempts.found) == {k for k in run.verdicts if k[1] != CLEAN}
    assert "toy" in run.recipe
    assert run.info.facts.class_names == ("ant", "bee", "cat")


def test_reading_a_run_needs_no_torch(folder):
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from robust0.writers.artefacts import write_all\n"
        "from robust0.gate import baseline, decide, replay\n"
        "import robust0.cli.gate, robust0.cli.report, robust0.cli.schema, robust0.commands.gate\n"
        f"write_all(Path({str(folder)!r}))\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(RunError, match="no run directory"):
        read_run(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_an_unfinished_run_says_how_to_go_on(folder):
    (folder / "report.json").unlink()
    with pytest.raises(RunError, match="not finished") as refusal:
        read_run(folder)
    assert "--resume" in refusal.value.hint


@pytest.mark.parametrize(
    "name", ["verdicts.jsonl", "attempts.safetensors", "clean.safetensors", "recipe.yaml"]
)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(RunError, match=f"{name} is missing"):
        touch_all(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("report.json", b""),
        ("report.json", b"[]"),
        ("report.json", b'{"schema": 1}'),
        ("report.json", b"[" * 100_000),
        ("report.json", b"\xff\xfe"),
        ("verdicts.jsonl", b'{"image": 1}\n'),
        ("verdicts.jsonl", b"\xff\n"),
        ("verdicts.jsonl", b"nonsense\n{}\n"),
        ("verdicts.jsonl", b""),
        ("attempts.safetensors", b"not tensors"),
        ("clean.safetensors", b"<html>"),
        ("recipe.yaml", b"\xff\xff"),
        ("run.json", b"{}"),
    ],
)
def test_a_damaged_file_is_refused(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(RunError, match=name.replace(".", r"\.")):
        touch_all(folder)


def test_another_schema_is_refused(folder):
    document = json.loads((folder / "report.json").read_text())
    (folder / "report.json").write_text(json.dumps({**document, "schema": 3}))
    with pytest.raises(RunError, match="schema 3, expected 2"):
        read_report(folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ids", np.zeros(40, np.int32), "int32"),
        ("labels", np.zeros(39, np.int64), "39 labels"),
        ("images", np.zeros((40, 3, 8, 8), np.float32), "float32"),
        ("images", np.zeros((40, 3, 8, 9), np.uint8), "its images are"),
        ("images", None, "no tensor 'images'"),
    ],
)
def test_clean_images_are_checked(folder, key, value, message):
    path = folder / "clean.safetensors"
    tensors = load_file(path)
    if value is None:
        del tensors[key]
    else:
        tensors[key] = value
    save_file(tensors, path)
    with pytest.raises(RunError, match=message):
        _ = read_run(folder).clean


def test_attempts_outside_the_image_are_refused(folder):
    from safetensors import safe_open

    path = folder / "attempts.safetensors"
    with safe_open(path, framework="numpy") as file:
        metadata, tensors = file.metadata(), load_file(path)
    tensors["places"][0] = 64
    save_file(tensors, path, metadata=metadata)
    with pytest.raises(RunError, match="does not fit an image"):
        _ = read_run(folder).attempts


def test_features_have_one_value_per_site(tmp_path):
    run = read_run(make_run(tmp_path / "run", Recipe(unit="feature")))
    key, attempt = next(iter(run.attempts.found.items()))
    assert attempt.values.shape == (len(attempt.places), 1)
    clean = run.clean.images[run.clean.rows()[key[2]]].astype(np.float32) / 255
    assert 0 < (run.attempts.paint(key, clean) != clean).sum() <= len(attempt.places)


def touch_all(folder):
    run = read_run(folder)
    return run.attempts, run.clean, run.recipe
