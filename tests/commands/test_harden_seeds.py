"""One run per seed: begun, resumed and summed up as a whole."""

import json
import statistics
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from robust0.cli.app import run
from robust0.commands.harden_recipe import parse_seeds
from robust0.commands.harden_seeds import summarise_seeds
from robust0.errors import RecipeError

SMALL = [
    "harden", "--data", "sample", "--model", "preact_resnet18_w8", "--epochs", "1",
    "--train-images", "32", "--batch-size", "16", "--device", "cpu",
]  # fmt: skip
PROBE = ["images=16", "forwards=4", "queries=4"]
TINY = [*SMALL, *(word for text in PROBE for word in ("--set", f"training.probe.{text}"))]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def weights(seed):
    return load_file(f"runs/seed-{seed}/model.safetensors")


def same(first, second):
    return all((first[name] == second[name]).all() for name in first)


def test_seeds_are_trained_resumed_and_summed_up_as_a_whole(capsys):
    assert run([*TINY, "--seeds", "3,5", "-o", "runs"]) == 0
    said = capsys.readouterr()
    words = [line.split()[0] for line in said.out.splitlines()[1:]]
    assert words == ["seed", "3", "5", "mean", "deviation"]
    assert "for 2 runs" in said.err
    third, fifth = weights(3), weights(5)
    assert not same(third, fifth)
    summary = json.loads(Path("runs/summary.json").read_text())
    clean = [one["clean"] for one in summary["runs"]]
    assert [one["seed"] for one in summary["runs"]] == [3, 5]
    assert summary["mean"]["clean"] == pytest.approx(statistics.fmean(clean))
    assert summary["deviation"]["clean"] == pytest.approx(statistics.stdev(clean))

    # As if it had been killed before the second seed's first snapshot.
    for path in [*Path("runs/seed-5").glob("*.safetensors"), Path("runs/summary.json")]:
        path.unlink()
    stamp = Path("runs/seed-3/model.safetensors").stat().st_mtime_ns
    assert run(["harden", "--resume", "runs", "--device", "cpu"]) == 0
    assert same(weights(5), fifth)
    assert Path("runs/seed-3/model.safetensors").stat().st_mtime_ns == stamp
    assert json.loads(Path("runs/summary.json").read_text()) == summary
    assert run([*TINY, "--seeds", "3,5", "-o", "runs"]) == 2


def test_a_run_without_readings_has_no_mean():
    for seed, lines in ((0, ['{"event":"epoch","clean":0.5,"training_attack":null,"probe":0.25,'
                             '"best":true}']), (1, [])):  # fmt: skip
        Path(f"seed-{seed}").mkdir()
        Path(f"seed-{seed}/metrics.jsonl").write_text("".join(line + "\n" for line in lines))
    Path("seeds.json").write_text('{"seeds": [0, 1]}')
    rows = summarise_seeds(Path())
    assert [row["probe"] for row in rows] == ["25.0 %", None, None, None]
    assert rows[0]["best probe"] == "25.0 %"


@pytest.mark.parametrize("text", ["", "a", "0,,1", "-1", "1,1", "0 1"])
def test_what_is_no_list_of_seeds_is_refused(text):
    with pytest.raises(RecipeError):
        parse_seeds(text)


def test_seeds_and_a_seed_or_a_resumption_exclude_each_other(capsys):
    assert run([*TINY, "--seeds", "0,1", "--seed", "2", "-o", "runs"]) == 2
    Path("runs").mkdir()
    Path("runs/seeds.json").write_text('{"seeds": [0, 1]}')
    assert run(["harden", "--resume", "runs", "--seeds", "0,1"]) == 2
    Path("runs/seeds.json").write_text('{"seeds": ["../x"]}')
    assert run(["harden", "--resume", "runs"]) == 2
    assert "seeds.json is damaged" in capsys.readouterr().err
