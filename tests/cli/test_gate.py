import json
from xml.etree import ElementTree

import numpy as np
import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robust0.cli.gate import gate
from robust0.errors import DataError, EvaluationError, Robust0Error, RunError
from robust0.records import Flag
from tests.auditing.factory_report import Recipe, breaks_some, make_run

app = typer.Typer()
app.command()(gate)


@pytest.fixture(autouse=True)
def no_actions(monkeypatch):
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)


def call(*arguments):
    """The exit code of the command, as the robust0 program returns it."""
    try:
        code = app([str(a) for a in arguments], standalone_mode=False)
    except Robust0Error as refusal:
        return refusal.exit_code
    return code or 0


def worse(image, attack, budget):
    return image % 4 == 0 or breaks_some(image, attack, budget)


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run")


@pytest.fixture
def baseline(run, tmp_path):
    path = tmp_path / "baseline.json"
    assert call(run, "--write-baseline", path) == 0
    return path


def test_the_same_run_passes_and_a_worse_one_fails(run, baseline, tmp_path, capsys):
    assert call(run, "--baseline", baseline) == 0
    out = capsys.readouterr().out
    assert out.startswith("gate passed: 2 conditions met\nok: saa at 3 pixels fell by 0.0 points")
    bad = make_run(tmp_path / "bad", Recipe(breaks=worse))
    assert call(bad, "--baseline", baseline, "--policy", "significant") == 1
    out = capsys.readouterr().out
    assert out.startswith("gate FAILED: 2 of 2 conditions not met\nFAIL: saa")
    for words in ("95 % interval of the drop", "McNemar p =", "40 images can show a drop of"):
        assert words in out
    assert call(bad, "--baseline", baseline, "--max-drop", "100") == 0
    assert call(run, "--baseline", baseline, "--metric", "clean", "--metric", "sparse-rs") == 0


def test_floors_alone(run):
    assert call(run, "--fail-under", "saa=0") == 0
    assert call(run, "--fail-under", "saa=0", "--fail-under", "clean=99.9") == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1}, {"effort": "paper"}, {"mode": "cascade"}, {"unit": "feature"},
        {"budgets": (4,)}, {"revision": 2}, {"steps": 7}, {"fingerprint": "x"}, {"first_id": 101},
        {"attacks": ("sparse-pgd-p", "sparse-pgd-u", "sparse-rs")}, {"thorough": True},
    ],
    ids=lambda c: next(iter(c)),
)  # fmt: skip
def test_what_cannot_be_compared_is_exit_two(baseline, tmp_path, capsys, changes):
    other = make_run(tmp_path / "other", Recipe(**changes))
    assert call(other, "--baseline", baseline, "--max-drop", "100") == 2
    assert capsys.readouterr().out == ""
    with pytest.raises(RunError, match="not comparable"):
        app([str(other), "--baseline", str(baseline)], standalone_mode=False)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["RUN"],
        ["RUN", "--max-drop", "1"],
        ["RUN", "--metric", "saa", "--fail-under", "saa=1%"],
        ["RUN", "--policy", "strict", "--fail-under", "saa=1%"],
        ["RUN", "--fail-under", "saa"],
        ["RUN", "--baseline", "B", "--max-drop", "nan"],
        ["RUN", "--baseline", "B", "--max-drop", "-1"],
        ["RUN", "--baseline", "B", "--metric", "nobody"],
        ["RUN", "--baseline", "B", "--fail-on-replay"],
        ["RUN", "--baseline", "B", "--replay", "--model", "m.safetensors"],
        ["RUN", "--fail-under", "saa=1%", "--replay"],
        ["--baseline", "B"],
        ["--baseline", "B", "--replay"],
        ["--baseline", "B", "--replay", "--model", "m", "--fail-under", "saa=1%"],
        ["--write-baseline", "X"],
        ["RUN", "--write-baseline", "X", "--baseline", "B"],
        ["RUN", "--write-baseline", "X", "--fail-under", "saa=1%"],
    ],
    ids=" ".join,
)
def test_commands_that_say_nothing_are_refused(run, baseline, tmp_path, capsys, arguments):
    places = {"RUN": run, "B": baseline, "X": tmp_path / "x.json"}
    words = [places.get(word, word) for word in arguments]
    with pytest.raises(Robust0Error) as refusal:
        app([str(word) for word in words], standalone_mode=False)
    assert refusal.value.exit_code == 2
    assert refusal.value.hint
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "x.json").exists()


def test_broken_promises_decide_nothing(run, tmp_path):
    path = run / "report.json"
    document = json.loads(path.read_text())
    document["results"]["budgets"][0]["attacks"][0]["violations"] = 1
    path.write_text(json.dumps(document))
    with pytest.raises(EvaluationError):
        app([str(run), "--fail-under", "saa=0"], standalone_mode=False)
    assert call(run, "--fail-under", "saa=0") == 3


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("robust0", "audit", "sample"), 2),
        (("robust0", "audit", "m", "--data", "sample"), 0),
        (("robust0", "audit", "m", "--data=sample"), 0),
    ],
)
def test_the_sample_must_have_been_asked_for(tmp_path, command, code):
    folder = make_run(tmp_path / "run", Recipe(command=command))
    for name in ("report.json", "run.json"):
        text = (folder / name).read_text().replace('"toy"', '"sample"')
        (folder / name).write_text(text)
    assert call(folder, "--fail-under", "saa=0") == code


@pytest.mark.parametrize("floor", ["0", "100"])
@pytest.mark.parametrize("form", ["auto", "rich", "plain", "json", "markdown", "junit"])
def test_forms_agree_with_the_exit_code(run, capsys, form, floor):
    code = call(run, "--fail-under", f"saa={floor}", "--output-format", form)
    out = capsys.readouterr().out
    assert code == (1 if floor == "100" else 0)
    if form == "json":
        document = json.loads(out)
        assert (document["exit_code"], document["schema"]) == (code, 1)
    elif form == "junit":
        suite = ElementTree.fromstring(out.encode())[0]
        assert int(suite.get("failures")) == code
    else:
        assert ("gate FAILED" in out) is (code == 1)
        assert ("gate passed" in out) is (code == 0)


def test_actions_get_a_summary_an_annotation_and_the_number(run, tmp_path, monkeypatch, capsys):
    summary, output = tmp_path / "summary.md", tmp_path / "output"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    summary.write_text("before\n")
    floors = ["--fail-under", "saa=100", "--fail-under", "clean=100", "--fail-under", "clean=1%"]
    assert call(run, *floors) == 1
    lines = capsys.readouterr().out.splitlines()
    errors = [line for line in lines if line.startswith("::")]
    assert len(errors) == 2
    assert errors[0].startswith("::error title=robust0 gate%3A saa at 3 pixels::saa at 3 pixels: ")
    assert " %25 " in errors[0]
    assert summary.read_text().startswith("before\n## ❌ robust0 gate FAILED")
    values = dict(line.split("=", 1) for line in output.read_text().splitlines())
    assert (values["passed"], values["metric"]) == ("false", "saa at 3 pixels")
    assert 0 < float(values["value"]) < 100


def test_actions_keep_data_clean_and_hear_of_refusals(run, baseline, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path))  # a folder: a warning, not a crash
    assert call(run, "--fail-under", "saa=100", "--output-format", "json") == 1
    captured = capsys.readouterr()
    json.loads(captured.out)
    assert "::error" in captured.err
    assert "GITHUB_OUTPUT" in captured.err
    other = make_run(tmp_path / "other", Recipe(seed=5))
    assert call(other, "--baseline", baseline) == 2
    assert "seed 0" in summary.read_text()
    assert "could not decide" in summary.read_text()
    assert "::error" in capsys.readouterr().err


def test_an_annotation_cannot_be_broken_out_of():
    from robust0.cli.github import annotation

    line = annotation("a:b,c\n::error::", "100 %\r\n::set-output name=x::y")
    assert line == (
        "::error title=a%3Ab%2Cc%0A%3A%3Aerror%3A%3A::100 %25%0D%0A::set-output name=x::y"
    )


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    bad=st.sets(st.integers(100, 119)),
    policy=st.sampled_from(["strict", "significant"]),
    allowed=st.sampled_from(["0", "5", "25", "100"]),
    floor=st.sampled_from([None, "20", "80"]),
)
def test_verdict_and_exit_code_agree_on_real_runs(
    tmp_path_factory, capsys, bad, policy, allowed, floor
):
    folder = tmp_path_factory.mktemp("gate")
    small = {"images": 20, "wrong": (), "attacks": ("sparse-rs",)}
    good = make_run(folder / "good", Recipe(**small, breaks=lambda i, a, b: False))
    new = make_run(folder / "new", Recipe(**small, breaks=lambda i, a, b: i in bad))
    assert call(good, "--write-baseline", folder / "b.json") == 0
    capsys.readouterr()
    extra = [] if floor is None else ["--fail-under", f"worst-case={floor}"]
    paired = ["--baseline", folder / "b.json", "--policy", policy, "--max-drop", allowed]
    code = call(new, *paired, *extra)
    out = capsys.readouterr().out
    drop = 5 * len(bad)
    failed = drop > float(allowed) and (policy == "strict" or len(bad) >= 5)
    low = floor is not None and 100 - drop < float(floor)
    assert code == int(failed or low)
    assert ("FAILED" in out.splitlines()[0]) is (code == 1)
    assert ("passed" in out.splitlines()[0]) is (code == 0)
    assert out.count("\nFAIL: ") == int(failed) + int(low)


class TestReplay:
    """With a real network: bright or dark, by a linear layer."""

    @pytest.fixture
    def place(self, tmp_path, monkeypatch):
        (tmp_path / "r0_toy_nets.py").write_text(
            "import torch\n"
            "from torch import nn\n"
            "def make():\n"
            "    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))\n"
            "    with torch.no_grad():\n"
            "        net[1].weight.copy_(torch.stack([-torch.ones(64), torch.ones(64)]))\n"
            "        net[1].bias.copy_(torch.tensor([30.5, -30.5]))\n"
            "    return net\n"
            "def weak():\n"
            "    net = make()\n"
            "    with torch.no_grad():\n"
            "        net[1].bias.copy_(torch.tensor([12.0, -12.0]))\n"
            "    return net\n"
        )
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        return tmp_path

    def made(self, folder, factory, **changes):
        pixels = np.zeros((20, 1, 8, 8), np.uint8)
        for row in range(20):
            pixels[row].reshape(-1)[:row] = 255
        recipe = {
            "images": 20, "channels": 1, "classes": ("0", "1"), "wrong": (), "sha256": None,
            "breaks": lambda i, a, b: False, "pixels": pixels, "labels": np.zeros(20, np.int64),
            "options": {"model": None, "factory": factory}, **changes,
        }  # fmt: skip
        return make_run(folder, Recipe(**recipe))

    def test_the_same_model_is_quiet_a_weaker_one_alarms(self, place, capsys):
        run = self.made(place / "run", "r0_toy_nets:make")
        assert call(run, "--write-baseline", "b.json") == 0
        named = ("--factory", "r0_toy_nets:make")
        assert call(run, "--baseline", "b.json", "--replay", "--fail-on-replay", *named) == 0
        assert "ok: replay: 0 of 20" in capsys.readouterr().out
        weak = self.made(place / "weak", "r0_toy_nets:weak")
        named = ("--factory", "r0_toy_nets:weak")
        assert call(weak, "--baseline", "b.json", "--replay", *named) == 0
        captured = capsys.readouterr()
        assert "alarm: replay: " in captured.out
        assert captured.out.startswith("gate passed")
        assert "--fail-on-replay would fail" in captured.err
        assert call(weak, "--baseline", "b.json", "--replay", "--fail-on-replay", *named) == 1
        out = capsys.readouterr().out
        assert out.startswith("gate FAILED: 1 of 3")

    def test_a_model_before_any_audit(self, place, capsys):
        """Without a run the data come from where the baseline says, if they are the same."""
        from robust0.data.datasets import open_dataset

        pixels = np.zeros((20, 8, 8, 1), np.uint8)
        for row in range(20):
            pixels[row].reshape(-1)[:row] = 255
        labels = np.array([0] * 19 + [1])
        np.savez("data.npz", images=pixels, labels=labels)
        print_ = open_dataset("npz:data.npz", "test").fingerprint
        run = self.made(
            place / "run", "r0_toy_nets:make", first_id=0, labels=labels, fingerprint=print_
        )
        for name in ("report.json", "run.json"):
            text = (run / name).read_text().replace('"toy"', '"npz:data.npz"')
            (run / name).write_text(text)
        assert call(run, "--write-baseline", "b.json") == 0
        replay = ["--baseline", "b.json", "--replay"]
        assert call(*replay, "--factory", "r0_toy_nets:make") == 0
        captured = capsys.readouterr()
        # The one image labelled bright is dark to this network: 5 points, and 1 is allowed.
        assert "alarm: replay: 1 of 20" in captured.out
        assert "no condition was set" in captured.out
        assert call(*replay, "--factory", "r0_toy_nets:make", "--max-drop", "5") == 0
        assert "ok: replay: 1 of 20" in capsys.readouterr().out
        assert call(*replay, "--factory", "r0_toy_nets:weak", "--fail-on-replay") == 1
        assert capsys.readouterr().out.startswith("gate FAILED: 1 of 1 condition")
        np.savez("data.npz", images=255 - pixels, labels=labels)
        with pytest.raises(DataError, match="does not hold the images"):
            app([*replay, "--factory", "r0_toy_nets:make"], standalone_mode=False)

    def test_another_model_than_the_audited_one_is_refused(self, place):
        run = self.made(place / "run", "r0_toy_nets:make", sha256="ab" * 32)
        assert call(run, "--write-baseline", "b.json") == 0
        named = ["--factory", "r0_toy_nets:make"]
        with pytest.raises(RunError, match="no longer the model"):
            app([str(run), "--baseline", "b.json", "--replay", *named], standalone_mode=False)


FATAL = Flag(name="randomised-model", fatal=True, message="answers differ")


def test_a_run_that_robust0_calls_unreliable_does_not_pass(tmp_path, capsys):
    run = make_run(tmp_path / "run", Recipe(flags=(FATAL,)))
    assert call(run, "--fail-under", "saa=0") == 4
    assert call(run, "--fail-under", "saa=0", "--allow", "not-this-one") == 4
    assert call(run, "--fail-under", "saa=0", "--allow", "randomised-model") == 0


def test_an_unreliable_baseline_does_not_pass(tmp_path, capsys):
    doubtful = make_run(tmp_path / "before", Recipe(flags=(FATAL,)))
    assert call(doubtful, "--write-baseline", tmp_path / "base.json") == 0
    run = make_run(tmp_path / "run", Recipe())
    assert call(run, "--baseline", tmp_path / "base.json") == 4
    assert call(run, "--baseline", tmp_path / "base.json", "--allow", "randomised-model") == 0


def test_too_few_images_cannot_be_significant(tmp_path, capsys):
    run = make_run(tmp_path / "run", Recipe(images=4))
    assert call(run, "--write-baseline", tmp_path / "base.json") == 0
    words = (run, "--baseline", tmp_path / "base.json", "--policy")
    assert call(*words, "significant") == 2
    assert call(*words, "strict") == 0
