"""The command as its users meet it: outputs, exit codes, refusals; on a one-line network."""

import json
import os
import xml.etree.ElementTree as Xml
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from robust0.attacks import ATTACKS
from robust0.cli.app import run
from robust0.commands.audit import open_audit
from robust0.commands.audit_recipe import AuditOptions
from robust0.distributed import World
from robust0.errors import RecipeError
from robust0.models.build import NetworkSpec, build
from robust0.models.checkpoint import Budget, Metadata, save_checkpoint
from robust0.rng import seeded

MODULE = """
import torch
from torch import nn


def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 6 * 5, 3))


class Spoilt(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = make()

    def forward(self, images):
        return self.change(self.network(images))


class Probabilities(Spoilt):
    def change(self, logits):
        return logits.softmax(dim=1)


class Broken(Spoilt):
    def change(self, logits):
        return logits * torch.nan


class Two(Spoilt):
    def change(self, logits):
        return logits, logits


def half():
    return make().half()


def number():
    return 3
"""
RUN = ("audit", "line.safetensors", "--factory", "line_factory:make", "--data", "npz:line.npz",
       "--eps", "4", "--effort", "smoke", "--attacks", "saa", "--batch-size", "16")  # fmt: skip
RESUME = ("audit", "--factory", "line_factory:make", "--resume")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder with weights, images and factories, in which the command runs."""
    with seeded("cli audit"):
        network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 6 * 5, 3))
        pixels = torch.randint(0, 256, (40, 3, 6, 5), dtype=torch.uint8)
    labels = network(pixels / 255).argmax(dim=1)
    labels[::10] = (labels[::10] + 1) % 3
    save_file(network.state_dict(), tmp_path / "line.safetensors")
    np.savez(
        tmp_path / "line.npz", images=pixels.permute(0, 2, 3, 1).numpy(), labels=labels.numpy()
    )
    (tmp_path / "line_factory.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ROBUST0_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ROBUST0_OFFLINE", "1")
    monkeypatch.setattr("robust0.auditing.estimate.SECONDS", 0.02)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(before)


def spoilt(name):
    return [*RUN[:3], f"line_factory:{name}", *RUN[4:]]


def without_weights(name):
    return ["audit", *spoilt(name)[2:]]


# -- outputs -----------------------------------------------------------------------------------


def test_json_on_stdout_is_the_report_and_the_rest_is_on_stderr(place, capfd):
    assert run([*RUN, "-o", "run", "--output-format", "json"]) == 0
    captured = capfd.readouterr()
    assert captured.out == (place / "run" / "report.json").read_text()
    results = json.loads(captured.out)["results"]
    assert results["clean"]["count"] == 36
    assert [row["name"] for row in results["budgets"][0]["attacks"]] == [
        "sparse-pgd-p", "sparse-pgd-u", "sparse-rs",
    ]  # fmt: skip
    assert [row["name"] for row in results["budgets"][0]["ensembles"]] == ["saa", "worst-case"]
    assert "npz:line.npz" in captured.err
    assert "at most" in captured.err
    assert "sparse-rs at 4 pixels: robust" in captured.err
    names = {path.name for path in (place / "run").iterdir()}
    assert names >= {
        "recipe.yaml", "run.json", "verdicts.jsonl", "attempts.safetensors", "clean.safetensors",
        "report.json", "report.html", "report.md",
    }  # fmt: skip


def test_sorted_images_are_chosen_from_every_class_and_the_reports_say_so(place, capfd):
    arrays = dict(np.load("line.npz"))
    order = arrays["labels"].argsort(kind="stable")
    np.savez("line.npz", images=arrays["images"][order], labels=arrays["labels"][order])
    words = ["--images", "9", "-o", "run", "--output-format", "plain"]
    assert run([*RUN, *words]) == 0
    said = "9 of 40, drawn with a fixed seed, each class in turn"
    assert all(said in " ".join(text.split()) for text in capfd.readouterr())
    results = json.loads((place / "run" / "report.json").read_text())["results"]
    assert [row["images"] for row in results["classes"]] == [5, 4]
    assert said in results["subject"]["choice"]
    assert all(said in (place / "run" / f"report.{end}").read_text() for end in ("md", "html"))


ROUNDS = [*RUN, "--eps", "2", "--effort", "converged", "--attacks", "guided-swap,sparse-rs,saif"]
for setting in ("guided-swap.forwards=8", "sparse-rs.queries=8", "saif.steps=2"):
    ROUNDS += ["--set", f"audit.params.{setting}"]


def test_a_converged_audit_shows_its_rounds_everywhere_and_can_be_gated(place, capfd):
    assert run([*ROUNDS, "-o", "run", "--output-format", "rich"]) == 0
    results = json.loads((place / "run" / "report.json").read_text())["results"]
    numbers = [row["number"] for row in results["rounds"]]
    assert max(numbers) >= 2
    assert [row["name"] for row in results["budgets"][0]["attacks"]] == [
        "guided-swap", "sparse-rs", "saif",
    ]  # fmt: skip
    texts = [capfd.readouterr().out]
    texts += [(place / "run" / f"report.{end}").read_text() for end in ("md", "html")]
    for text in texts:
        flat = " ".join(text.split())
        assert f"Converged in {max(numbers)} rounds of doubling budgets" in flat
        assert "tolerance 0.5 %" in flat
        assert "guided-swap" in flat
    assert texts[2].count('<path class="line turn-') == len(numbers)
    assert run(["gate", "run", "--write-baseline", "baseline.json"]) == 0
    assert run(["gate", "run", "--baseline", "baseline.json"]) == 0
    # Converged to another tolerance is another measurement.
    assert run([*ROUNDS, "--tolerance", "20", "-o", "loose"]) == 0
    capfd.readouterr()
    assert run(["gate", "loose", "--baseline", "baseline.json"]) == 2
    assert "tolerance 0.005 -> 0.2" in capfd.readouterr().err


def test_a_limit_that_ends_the_search_is_said(place, capfd):
    assert run([*ROUNDS, "--max-passes", "20", "-o", "run", "--output-format", "plain"]) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "Not a single doubling fitted within the limit of 20 passes" in said
    assert "not-converged" in said


def test_a_clock_that_ends_the_search_is_no_number_to_compare(place, capfd):
    assert run([*ROUNDS, "--max-minutes", "1e-6", "-o", "run", "--output-format", "plain"]) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "Not a single doubling fitted within the limit of 1e-06 minutes" in said
    assert "time-limit" in said
    assert "not-converged" not in said
    report = (place / "run" / "report.json").read_text()
    assert run([*RESUME, "run", "-q"]) == 0
    assert run(["report", "run"]) == 0
    after = (place / "run" / "report.json").read_text()
    assert json.loads(after)["results"] == json.loads(report)["results"]
    assert run(["gate", "run", "--fail-under", "worst-case=0"]) == 4
    assert "time-limit" in capfd.readouterr().err
    assert run(["gate", "run", "--fail-under", "worst-case=0", "--allow", "time-limit"]) == 0
    # Time enough is no difference.
    assert run([*ROUNDS, "--max-minutes", "600", "-o", "long"]) == 0
    assert run([*ROUNDS, "-o", "free"]) == 0
    assert run(["gate", "long", "--baseline", "free"]) == 0


def test_a_limit_of_time_is_for_one_process(place):
    options = AuditOptions(
        model="line.safetensors", factory="line_factory:make", data="npz:line.npz", eps="2",
        effort="converged", max_minutes=1.0, out=Path("run"),
    )  # fmt: skip
    two = World(rank=0, size=2)
    with (
        pytest.raises(RecipeError, match="for one process"),
        open_audit(options, torch.device("cpu"), two, lambda _: None),
    ):
        pass
    assert not (place / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-minutes", "1"], "say when --effort converged ends"),
        (["--effort", "converged", "--max-minutes", "0"], "audit.max_minutes"),
        (["--tolerance", "1"], "say when --effort converged ends"),
        (["--effort", "converged", "--mode", "battery"], "set mode to cascade"),
        (["--effort", "converged", "--tolerance", "0"], "audit.tolerance"),
    ],
)
def test_what_does_not_converge_is_refused(place, capfd, words, message):
    assert run([*RUN, *words, "-o", "run"]) == 2
    assert message in capfd.readouterr().err
    assert not (place / "run").exists()


def test_an_effort_that_was_changed_is_called_so_everywhere(place, capfd):
    words = ["--set", "audit.params.sparse-rs.queries=2", "-o", "run", "--output-format", "plain"]
    assert run([*RUN, *words, "--attacks", "sparse-rs"]) == 0
    captured = capfd.readouterr()
    texts = [captured.out, captured.err]
    texts += [(place / "run" / f"report.{end}").read_text() for end in ("md", "html")]
    for text in texts:
        flat = " ".join(text.split())
        assert "smoke (modified)" in flat
        assert "sparse-rs.queries=2 (smoke: 50)" in flat
    assert "effort smoke," not in "".join(texts)


@pytest.mark.parametrize("form", ["rich", "plain", "markdown", "junit"])
def test_every_form_goes_to_stdout(capfd, form):
    assert run([*RUN, "-o", "run", "--output-format", form, "--fail-under", "clean=50"]) == 0
    out = capfd.readouterr().out
    assert "sparse-rs" in out
    if form == "junit":
        Xml.fromstring(out)
    else:
        assert "upper bound" in " ".join(out.split())


def test_by_default_the_run_gets_a_folder_of_its_own(place, capfd):
    assert run(list(RUN)) == 0
    (folder,) = (place / "runs").iterdir()
    assert (folder / "report.json").exists()
    assert folder.name.endswith("_audit_npz-line.npz_line-factory-make")


def test_runs_of_the_same_second_get_folders_of_their_own(place, monkeypatch, capfd):
    monkeypatch.setattr("robust0.commands.audit.time.time", lambda: 1_800_000_000.0)
    for _ in range(3):
        assert run(list(RUN)) == 0, capfd.readouterr().err
    names = sorted(folder.name for folder in (place / "runs").iterdir())
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(place, capfd):
    before = set(place.rglob("*"))
    assert run([*RUN, "-o", "run", "--dry-run", "--output-format", "json"]) == 0
    plan = json.loads(capfd.readouterr().out)
    assert [cost["attack"] for cost in plan["costs"]][:2] == ["sparse-pgd-p", "sparse-pgd-u"]
    assert plan["seconds"] > 0
    assert run([*RUN, "--dry-run"]) == 0
    assert "sparse-rs (50)" in " ".join(capfd.readouterr().out.split())
    after = {path for path in place.rglob("*") if "__pycache__" not in str(path)}
    assert after == before


def test_several_budgets_modes_and_units(place, capfd):
    assert run([*RUN, "--eps", "2,8,4", "--mode", "cascade", "--unit", "feature", "-o", "run"]) == 0
    results = json.loads((place / "run" / "report.json").read_text())["results"]
    assert results["settings"]["budgets"] == [8, 4, 2]
    assert (results["settings"]["unit"], results["settings"]["mode"]) == ("feature", "cascade")


def test_a_recipe_gives_what_options_leave_open(place, capfd):
    (place / "mine.yaml").write_text(
        "schema: 1\nextends: cifar10\nname: mine\naudit:\n  mode: cascade\n  effort: smoke\n"
        "  images: 7\n  attacks: [sparse-rs]\n  seed: 5\n"
    )
    arguments = [*RUN[:6], "--recipe", "mine.yaml", "--eps", "3", "-o", "run"]
    assert run([*arguments, "--set", "audit.params.sparse-rs.queries=9"]) == 0
    results = json.loads((place / "run" / "report.json").read_text())["results"]
    settings = results["settings"]
    assert (settings["mode"], settings["effort"], settings["seed"]) == ("cascade", "smoke", 5)
    assert results["subject"]["images"] == 7
    assert results["budgets"][0]["attacks"][0]["params"]["queries"] == 9


# -- checkpoints -------------------------------------------------------------------------------


THIN = NetworkSpec("test_resnet", 10, (3, 32, 32), (0.4, 0.5, 0.6), (0.2, 0.2, 0.2))


@pytest.fixture
def checkpoint(place):
    """A real checkpoint of a thin network for CIFAR-10, untrained."""
    metadata = Metadata.of(
        THIN, dataset="cifar10", method="fast-ls-l0", eval_budget=Budget(unit="pixel", amount=3)
    )
    save_checkpoint(place / "thin.safetensors", build(THIN), metadata)
    return ["audit", "thin.safetensors", "--images", "16", "--effort", "smoke",
            "--attacks", "sparse-rs", "--batch-size", "16"]  # fmt: skip


def test_a_checkpoint_brings_data_budget_and_normalisation(place, checkpoint, capfd):
    assert run([*checkpoint, "-o", "run", "--output-format", "json"]) == 0
    captured = capfd.readouterr()
    results = json.loads(captured.out)["results"]
    assert results["settings"]["budgets"] == [3]
    subject = results["subject"]
    assert (subject["dataset"], subject["method"]) == ("sample", "fast-ls-l0")
    assert subject["mean"] == [0.4, 0.5, 0.6]
    assert "warning: CIFAR-10 is not in the cache" in captured.err
    assert "mean 0.4, 0.5, 0.6" in captured.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "took its budget and data from the checkpoint"),
        (("--eps", "2"), "took its data from the checkpoint"),
        (("--data", "sample"), "took its budget from the checkpoint"),
    ],
)
def test_a_checkpoint_does_not_choose_what_a_floor_rests_on(
    place, checkpoint, capfd, words, message
):
    assert run([*checkpoint, *words, "-o", "run", "--fail-under", "clean=0"]) == 2
    assert message in capfd.readouterr().err
    assert not (place / "run").exists()
    # The same run without a floor is fine, but no gate and no baseline rests on it.
    assert run([*checkpoint, *words, "-o", "run"]) == 0
    capfd.readouterr()
    assert run(["audit", "--resume", "run", "--fail-under", "clean=0"]) == 2
    assert run(["gate", "run", "--fail-under", "clean=0"]) == 2
    assert run(["gate", "run", "--write-baseline", "baseline.json"]) == 2
    assert capfd.readouterr().err.count("from the checkpoint") == 3


def test_budget_and_data_that_are_said_are_taken(place, checkpoint, capfd):
    said = ["--data", "sample", "--set", "threat.pixels=2", "-o", "run"]
    assert run([*checkpoint, *said, "--fail-under", "clean=0", "--output-format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["results"]["settings"]["budgets"] == [2]
    assert run(["gate", "run", "--fail-under", "clean=0"]) == 0


def test_with_a_recipe_the_sample_does_not_stand_in_for_its_data(place, checkpoint, capfd):
    assert run([*checkpoint, "--recipe", "quick", "-o", "run"]) == 2
    assert "cifar10 cannot be fetched" in capfd.readouterr().err
    assert not (place / "run").exists()
    (place / "mine.yaml").write_text("schema: 1\nextends: cifar10\ndataset:\n  name: sample\n")
    assert run([*checkpoint, "--recipe", "mine.yaml", "-o", "run"]) == 0
    assert run(["gate", "run", "--fail-under", "clean=0"]) == 0


def test_resuming_needs_the_same_weights(place, checkpoint, capfd):
    assert run([*checkpoint, "-o", "run"]) == 0
    save_checkpoint(
        place / "thin.safetensors", build(THIN, seed=1), Metadata.of(THIN, dataset="cifar10")
    )
    capfd.readouterr()
    assert run(["audit", "--resume", "run"]) == 2
    assert "was started with another model (was" in capfd.readouterr().err


def test_a_checkpoint_of_a_factory_says_so(place, capfd):
    assert run(["audit", "line.safetensors", "--eps", "3"]) == 2
    assert "give --factory" in capfd.readouterr().err


@pytest.fixture
def published(place):
    """A folder as timm publishes networks: config.json and model.safetensors, no word of ours."""
    folder = place / "published"
    folder.mkdir()
    save_file(build(THIN, seed=7).network.state_dict(), folder / "model.safetensors")
    config = {
        "architecture": "test_resnet", "num_classes": 10,
        "pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "std": [1, 1, 1], "num_classes": 10,
                           "classifier": "fc", "first_conv": "conv1"},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return ["audit", "local-dir:published", "--eps", "3", "--images", "16", "--effort", "smoke",
            "--attacks", "sparse-rs", "--batch-size", "16"]  # fmt: skip


def test_published_weights_bring_their_own_normalisation(published, capfd):
    assert run([*published, "--data", "sample", "-o", "run", "--output-format", "json"]) == 0
    subject = json.loads(capfd.readouterr().out)["results"]["subject"]
    assert (subject["arch"], subject["mean"]) == ("test_resnet", [0.1, 0.2, 0.3])
    assert len(subject["sha256"]) == 64


def test_published_weights_need_data_and_its_classes(published, capfd):
    assert run(published) == 2
    assert "does not say which data" in capfd.readouterr().err
    assert run([*published, "--data", "npz:line.npz"]) == 2
    assert "has 10 classes, npz:line.npz has 3" in capfd.readouterr().err


# -- exit codes --------------------------------------------------------------------------------


def test_floors_decide_the_exit_code(capfd):
    floors = ["--fail-under", "clean=80", "--fail-under", "worst-case=99", "--fail-under", "saa=0"]
    assert run([*RUN, "-o", "run", *floors]) == 1
    error = capfd.readouterr().err
    assert "gate FAILED: 1 of 3" in error
    assert run([*RESUME, "run", "--fail-under", "clean=80"]) == 0
    assert "gate passed" in capfd.readouterr().err


def test_a_failed_floor_reaches_github_actions(tmp_path, monkeypatch, capfd):
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    failing = ["--fail-under", "worst-case=99", "--output-format", "json"]
    assert run([*RUN, "-o", "run", *failing]) == 1
    captured = capfd.readouterr()
    json.loads(captured.out)
    assert "::error title=robust0 gate" in captured.err
    assert "robust0 gate FAILED" in summary.read_text()


@pytest.mark.parametrize(
    ("floor", "message"),
    [
        ("saa=nan", "needs a number"),
        ("saa=101", "needs a number"),
        ("saa", "is not NAME=PERCENT"),
        ("guided-swap=3", "no such number"),
        ("saa@7=3", "no budget of 7"),
    ],
)
def test_floors_that_mean_nothing_are_refused_at_once(place, capfd, floor, message):
    assert run([*RUN, "-o", "run", "--fail-under", floor]) == 2
    assert message in capfd.readouterr().err
    assert not (place / "run").exists()


def test_in_a_cascade_a_single_attack_has_no_floor(capfd):
    assert run([*RUN, "--mode", "cascade", "--fail-under", "sparse-rs=3"]) == 2
    assert "one of clean, worst-case, saa" in capfd.readouterr().err


def test_fatal_flags_end_a_strict_run_only(capfd):
    weights = [*without_weights("Probabilities"), "-o", "loose"]
    assert run(weights) == 0
    assert "probabilities: " in capfd.readouterr().err
    assert run([*without_weights("Probabilities"), "-o", "strict", "--strict"]) == 4
    assert "not reliable: probabilities" in capfd.readouterr().err
    assert Path("strict/report.json").exists()  # the report says why
    assert run([*RUN, "-o", "fine", "--strict"]) == 0


def test_a_cheating_attack_is_exit_3(capfd, monkeypatch):
    class Cheat(ATTACKS["sparse-rs"]):
        __slots__ = ()

        def ask(self, state):
            return 1 - state.image(state.clean)

    monkeypatch.setitem(ATTACKS.members(), "sparse-rs", Cheat)
    assert run([*RUN, "-o", "run", "--fail-under", "clean=99"]) == 3
    captured = capfd.readouterr()
    assert "broke their own promises" in captured.err
    assert "! violation: sparse-rs (36, beyond the budget)" in captured.err
    assert "violation" in captured.out


def test_nan_answers_are_exit_3_and_leave_nothing(place, capfd):
    assert run([*without_weights("Broken"), "-o", "run"]) == 3
    assert "NaN" in capfd.readouterr().err
    assert not (place / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (without_weights("Two"), "returns a tuple"),
        (without_weights("half"), "expected float32"),
        (without_weights("number"), "expected a torch.nn.Module"),
        (without_weights("missing"), "has no missing"),
        (["audit", *RUN[4:]], "no model was named"),
        (["audit", "nothing.safetensors"], "there is no file 'nothing.safetensors'"),
        (["audit", "nothing"], "no model named 'nothing'"),
        (["audit", "line_factory.py", *RUN[2:]], "line_factory.py"),
        ([*RUN[:4], "--eps", "4"], "does not say which data"),
        ([*RUN, "--data", "npz:none.npz"], "there is no file"),
        ([*RUN, "--data", "cifar"], "unknown dataset"),
        ([*RUN, "--data", "sample"], "the model fails on 3x32x32 images"),
        ([*RUN, "--eps", "0"], "at least 1"),
        ([*RUN, "--eps", "-3"], "at least 1"),
        ([*RUN, "--eps", "4,x"], "whole numbers"),
        ([*RUN, "--eps", "31"], "exceeds the 30 pixels"),
        ([*RUN, "--eps", "91", "--unit", "feature"], "exceeds the 90 features"),
        ([*RUN[:6], "--unit", "feature"], "needs a budget in features"),
        ([*RUN, "--images", "0"], "images"),
        ([*RUN, "--batch-size", "8"], "at least 16"),
        ([*RUN, "--attacks", "sparse-r"], "no attack or group"),
        ([*RUN, "--set", "audit.params.sparse-rs.querys=3"], "querys"),
        ([*RUN, "--set", "audit.params.sparse-rs.queries=-1"], "queries"),
        ([*RUN, "--set", "audit.params.sparse-pgd-p.projected=false"], "projected: False"),
        ([*RUN, "--device", "cuda:99"], "cuda"),
        (["audit", "--resume", "nowhere"], "holds no audit"),
        (["audit", "--resume", "cut"], "damaged"),
    ],
)
def test_mistakes_are_two_lines_and_code_2(place, capfd, arguments, message):
    (place / "cut").mkdir()
    (place / "cut" / "run.json").write_text('{"schema_version": 1')
    assert run([*arguments, *([] if "--resume" in arguments else ["-o", "run"])]) == 2
    captured = capfd.readouterr()
    lines = captured.err.strip().splitlines()
    assert captured.out == ""
    assert len(lines) == 2, lines
    assert message in lines[0]
    assert lines[1].startswith("hint: ")
    assert not (place / "run").exists()


# -- run directories ---------------------------------------------------------------------------


def test_a_used_folder_is_not_written_over(place, capfd):
    assert run([*RUN, "-o", "run"]) == 0
    before = (place / "run" / "report.json").read_bytes()
    assert run([*RUN, "-o", "run"]) == 2
    assert "already holds a run" in capfd.readouterr().err
    assert (place / "run" / "report.json").read_bytes() == before


def test_settings_cannot_be_changed_on_resuming(capfd):
    assert run([*RUN, "-o", "run"]) == 0
    assert run(["audit", "--resume", "run", "--eps", "5"]) == 2
    assert "cannot be changed" in capfd.readouterr().err


def test_a_run_directory_never_executes_code(place, capfd):
    assert run([*RUN, "-o", "run"]) == 0
    assert run(["gate", "run", "--write-baseline", "b.json"]) == 0
    capfd.readouterr()
    gate = ["gate", "run", "--baseline", "b.json", "--replay"]
    for words in (["audit", "--resume", "run"], gate):
        assert run(words) == 2
        assert "if you trust it, add --factory line_factory:make" in capfd.readouterr().err
    document = json.loads((place / "run" / "run.json").read_text())
    document["options"]["factory"] = "trap:make"
    (place / "run" / "run.json").write_text(json.dumps(document))
    (place / "trap.py").write_text(
        "from pathlib import Path; Path('sprung').touch()\nfrom line_factory import make\n"
    )
    for words in ([*RESUME, "run"], ["audit", "--resume", "run"]):
        assert run(words) == 2
        assert "--factory trap:make" in capfd.readouterr().err
    assert run([*gate, "--factory", "trap:make"]) == 2
    assert not (place / "sprung").exists()


def test_attacks_of_a_run_are_named_again(place, capfd):
    assert run([*RUN, "-o", "run"]) == 0
    recipe = place / "run" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("kind: sparse-rs", "kind: trap:Attack", 1))
    (place / "trap.py").write_text("from pathlib import Path; Path('sprung').touch()\n")
    capfd.readouterr()
    assert run([*RESUME, "run"]) == 2
    assert "if you trust it, add --attacks trap:Attack" in capfd.readouterr().err
    assert not (place / "sprung").exists()
    assert run([*RESUME, "run", "--attacks", "trap:Attack"]) == 2
    assert (place / "sprung").exists(), "named: imported, and then refused for what it is"


def test_another_thread_count_is_named(capfd):
    assert run([*RUN, "-o", "run"]) == 0
    torch.set_num_threads(8)  # four calls at once, two threads each
    assert run([*RESUME, "run"]) == 2
    assert "threads per call (OMP_NUM_THREADS) (was 1, is 2)" in capfd.readouterr().err


def test_changed_data_are_named(place, capfd):
    assert run([*RUN, "-o", "run"]) == 0
    arrays = dict(np.load(place / "line.npz"))
    arrays["images"][3, 2, 1, 0] ^= 1
    np.savez(place / "line.npz", **arrays)
    assert run([*RESUME, "run"]) == 2
    assert "another data fingerprint" in capfd.readouterr().err


@pytest.mark.parametrize("target", ["file", "readonly/run"])
def test_folders_that_cannot_be_written_are_refused(place, capfd, target):
    (place / "file").write_text("in the way")
    (place / "readonly").mkdir(mode=0o500)
    if target.startswith("readonly") and os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    assert run([*RUN, "-o", target]) == 2
    assert "cannot write to the run directory" in capfd.readouterr().err


def test_a_path_with_spaces_and_umlauts(place, capfd):
    assert run([*RUN, "-o", "ein Lauf mit Ümlaut"]) == 0
    assert (place / "ein Lauf mit Ümlaut" / "report.html").exists()
