"""Studies run unit by unit: killed and resumed they give the same JSON; figures and page follow."""

import json

import pytest
import torch

from robust0.errors import ModelError, RecipeError, RunError
from robust0.study.attack_jobs import gradients_job, interpolate_job, overlap_job
from robust0.study.curvature_jobs import landscape_job, spectrum_job
from robust0.study.figures import draw
from robust0.study.perturb import StudyImages, TrainingAttack, Unperturbed
from robust0.study.run import run_study
from robust0.study.subjects import StudyScope, StudySubject
from robust0.study.tables import rows_of
from robust0.study.training import RecordedRun, overfitting_moment, training_job
from robust0.study_events import StudyAdvanced, StudyStarted
from robust0.threats import Threat
from robust0.training.methods.inner import SparsePGDInner
from robust0.writers.study_html import write_page
from tests.study.tiny import images_and_labels, tiny_network


def scope(seed=0):
    images, labels = images_and_labels(12)
    attacks = (
        TrainingAttack("one step", SparsePGDInner(), Threat.of(3), seed),
        TrainingAttack("four steps", SparsePGDInner(steps=4), Threat.of(2), seed),
    )
    models = [StudySubject(f"width {w}", tiny_network(w), f"weights {w}", attacks) for w in (1, 2)]
    return StudyScope(models, StudyImages(images, labels, torch.arange(12)), "data", seed)


JOBS = {
    "spectrum": lambda s: spectrum_job(s, count=3, density_steps=4),
    "landscape": lambda s: landscape_job(s, points=3),
    "overlap": overlap_job,
    "interpolate": lambda s: interpolate_job(s, (0, 0.5, 1)),
    "gradients": lambda s: gradients_job(s, batch=8),
}


class StopAt:
    """Presses Ctrl-C when a unit begins."""

    def __init__(self, unit):
        self.unit, self.ready = unit, None

    def __call__(self, event):
        if isinstance(event, StudyStarted):
            self.ready = event.ready
        if isinstance(event, StudyAdvanced) and event.unit == self.unit:
            raise KeyboardInterrupt


@pytest.mark.parametrize("part", JOBS)
def test_killed_and_resumed_is_the_same_json(part, tmp_path):
    whole = run_study(JOBS[part](scope()), tmp_path / "whole")
    stopped = StopAt(1)
    with pytest.raises(KeyboardInterrupt):
        run_study(JOBS[part](scope()), tmp_path / "cut", stopped)
    assert not (tmp_path / "cut" / f"{part}.json").exists()
    again = StopAt(None)
    assert run_study(JOBS[part](scope()), tmp_path / "cut", again) == whole
    assert (stopped.ready, again.ready) == (0, 1)
    texts = [(tmp_path / name / f"{part}.json").read_bytes() for name in ("whole", "cut")]
    assert texts[0] == texts[1]
    assert run_study(JOBS[part](scope())) == whole  # without a folder too

    rows = rows_of(whole)
    assert {tuple(row) for row in rows} == {tuple(rows[0])}


def test_another_study_in_the_folder_is_refused(tmp_path):
    run_study(overlap_job(scope()), tmp_path)
    with pytest.raises(RunError, match="another models, seed"):
        run_study(overlap_job(scope(seed=1)), tmp_path)


def test_a_seed_decides_the_result():
    first, same, other = (run_study(overlap_job(scope(seed)))["results"] for seed in (0, 0, 1))
    assert first == same
    assert first != other


def test_a_landscape_freezes_the_perturbations_where_asked():
    anew = run_study(landscape_job(scope(), points=3))["results"]
    frozen = run_study(landscape_job(scope(), points=3, frozen=True))["results"]
    assert anew[0]["middle"] == frozen[0]["middle"]
    assert anew[0]["losses"] != frozen[0]["losses"]


def test_a_landscape_says_its_cost_beforehand():
    (note,) = landscape_job(scope(), points=5).notes
    assert "2 x 5x5 points on 12 images" in note
    assert "passes" in note


def test_random_directions_need_no_eigenvectors():
    result = run_study(landscape_job(scope(), points=3, directions="random"))["results"][0]
    assert result["eigenvalues"] == []
    assert result["lowest"] <= result["middle"] <= result["highest"]


@pytest.mark.parametrize(
    "job",
    [
        lambda s: landscape_job(s, points=0),
        lambda s: spectrum_job(s, count=0),
        lambda s: gradients_job(s, batch=0),
        lambda s: interpolate_job(s, ()),
    ],
)
def test_studies_of_nothing_are_refused_before_they_begin(job):
    with pytest.raises(RecipeError):
        job(scope())


def test_an_overlap_needs_two_attacks():
    one = scope()
    first = one.models[0]
    models = [StudySubject("a", first.network, "w", (Unperturbed(), first.attacks[0]))]
    with pytest.raises(RecipeError, match="two attacks"):
        run_study(overlap_job(StudyScope(models, one.data, "data", 0)))


def test_what_is_no_classifier_is_refused_before_anything_runs():
    one = scope()
    models = [StudySubject("a", torch.nn.Conv2d(3, 3, 1), "w", one.models[0].attacks)]
    with pytest.raises(ModelError):
        StudyScope(models, one.data, "data", 0)


def metrics(probes, attacked=None):
    attacked = attacked or [0.4] * len(probes)
    records = []
    for epoch, (probe, attack) in enumerate(zip(probes, attacked, strict=True), start=1):
        records.append({
            "event": "step", "step": 10 * epoch, "epoch": epoch - 1, "loss": 1.0,
            "learning_rate": 0.1, "gradient_norm": 2.0 * epoch, "clean_accuracy": 0.5,
        })  # fmt: skip
        records.append({
            "event": "epoch", "step": 10 * epoch, "epoch": epoch, "images": 200, "clean": 0.6,
            "training_attack": attack, "probe": probe, "probe_name": "guided-swap", "best": True,
        })  # fmt: skip
    return records


def recorded(label, probes, attacked=None):
    return RecordedRun(
        label, "sparse-at", metrics(probes, attacked), 10, 0.05, {"stop_early": True}
    )


def test_the_moment_of_overfitting_is_the_first_alarm():
    assert overfitting_moment(recorded("a", [0.2, 0.3, 0.4])) is None
    moment = overfitting_moment(recorded("b", [0.3, 0.4, 0.1, 0.0]))
    assert (moment["epoch"], moment["step"]) == (3, 30)
    assert "fell from 40.0% to 10.0%" in moment["reason"]
    moment = overfitting_moment(recorded("c", [0.3, 0.4], [0.4, 0.9]))
    assert moment["epoch"] == 2
    assert "exceeds clean accuracy" in moment["reason"]


def test_a_recorded_alarm_is_the_moment():
    run = recorded("a", [0.3, 0.4])
    said = {"event": "overfitting", "epoch": 2, "step": 20, "reason": "as the watch said"}
    run = RecordedRun("a", "sparse-at", [*run.records, said], 10, 0.05, {})
    assert overfitting_moment(run)["reason"] == "as the watch said"


def test_training_runs_share_a_page(tmp_path):
    runs = [recorded("with", [0.2, 0.3]), recorded("without", [0.3, 0.0])]
    document = run_study(training_job(runs), tmp_path)
    assert [row["overfitting"] for row in rows_of(document)] == ["never", "epoch 2"]
    assert document["results"][1]["gradient_norm"] == {"median": 4.0, "highest": 4.0}
    draw(document, tmp_path)
    page = write_page(tmp_path).read_text(encoding="utf-8")
    assert "without" in page
    assert json.loads((tmp_path / "training.json").read_text(encoding="utf-8")) == document


def test_figures_are_the_same_bytes_for_the_same_result(tmp_path):
    document = run_study(training_job([recorded("a", [0.2, 0.3])]))
    before, after = ([path.read_bytes() for path in draw(document, tmp_path)] for _ in range(2))
    assert before == after


def test_one_model_and_one_part_need_no_page(tmp_path):
    run_study(training_job([recorded("a", [0.2])]), tmp_path)
    assert write_page(tmp_path) is None
