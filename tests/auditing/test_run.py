"""Audits of a small network: what they find, that they are repeatable, that they can be resumed."""

import json
import os
import signal
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from robust0.attacks.base import State, begin
from robust0.auditing import store
from robust0.auditing.attempts import read_attempts
from robust0.auditing.facts import RunFile, write_run
from robust0.auditing.finish import rebuild_report, report_text
from robust0.auditing.run import run_audit
from robust0.auditing.store import key_of, read_verdicts
from robust0.distributed import World
from robust0.errors import EvaluationError, RunError
from robust0.events import (
    AttackDone,
    AuditFinished,
    AuditProgress,
    AuditStarted,
    CleanDone,
    FlagRaised,
)
from robust0.files import write_text
from robust0.records import CLEAN, Report

ONE = World()


@pytest.fixture(autouse=True)
def no_pages(monkeypatch):
    """Pages and pictures take longer than these audits; tests of the command write them."""
    monkeypatch.setattr("robust0.commands.build_audit.write_all", lambda folder: [])


def ended(job, *, resume=False) -> Report:
    last = list(run_audit(job, ONE, resume=resume))[-1]
    assert isinstance(last, AuditFinished)
    return last.report


def in_folder(job, folder):
    """The job in a run directory, begun as the command line begins one."""
    folder.mkdir(parents=True)
    write_text(folder / "recipe.yaml", "schema: 1\n")
    start = RunFile(
        identity=job.identity, options={}, image_shape=job.data.image_shape, facts=job.facts,
        started="now", command=("robust0",), processes=1,
    )  # fmt: skip
    write_run(folder, start)
    return replace(job, folder=folder)


def results(report: Report) -> str:
    return json.dumps(json.loads(report_text(report))["results"], sort_keys=True)


def rows(report, place=0):
    return {row.name: row for row in report.results.budgets[place].attacks}


# -- what is found ---------------------------------------------------------------------------------


def test_a_battery_tells_its_story_in_events(make_job):
    job = make_job(attacks=("sparse-pgd-u", "sparse-rs"))
    events = list(run_audit(job, ONE, resume=False))
    assert isinstance(events[0], AuditStarted)
    clean = next(event for event in events if isinstance(event, CleanDone)).clean
    done = [event for event in events if isinstance(event, AttackDone)]
    assert [event.standing.attack for event in done] == ["sparse-pgd-u", "sparse-rs"]
    assert all(event.standing.images == clean.count for event in done)
    shares = [event.share for event in events if isinstance(event, AuditProgress)]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    report = events[-1].report
    assert rows(report)["sparse-pgd-u"].broken == done[0].standing.broken > 0
    flags = [event.flag for event in events if isinstance(event, FlagRaised)]
    assert tuple(flags) == report.results.flags


def test_every_verdict_is_proved_by_its_attempt(make_job, toy, tmp_path):
    job = in_folder(make_job(budgets=(8, 5)), tmp_path / "run")
    report = ended(job)
    attempts = read_attempts(tmp_path / "run" / store.ATTEMPTS)
    verdicts = [v for v in read_verdicts(tmp_path / "run") if v.attack != CLEAN]
    assert {key_of(v) for v in verdicts} == set(attempts.found)
    painted = torch.stack(
        [torch.from_numpy(attempts.paint(key_of(v), toy.images[v.image].numpy())) for v in verdicts]
    )
    clean = toy.images[[v.image for v in verdicts]]
    with torch.no_grad():
        logits = toy.network(painted)
    changed = (painted != clean).any(dim=1).flatten(1).sum(dim=1)
    for verdict, answer, count in zip(verdicts, logits, changed.tolist(), strict=True):
        assert verdict.prediction == int(answer.argmax())
        assert verdict.fooled == (verdict.prediction != verdict.label)
        assert count == verdict.needed <= verdict.distance <= verdict.budget
        others = torch.cat([answer[: verdict.label], answer[verdict.label + 1 :]])
        gap = float(answer[verdict.label] - others.max())
        assert verdict.margin == pytest.approx(gap, abs=1e-4)
    assert sum(v.fooled for v in verdicts if v.budget == 8) == sum(
        row.broken for row in report.results.budgets[0].attacks
    )


def test_a_cascade_reaches_the_worst_case_with_fewer_attacks(make_job):
    names = ("sparse-pgd-u", "sparse-rs", "saif")
    battery, cascade = (ended(make_job(attacks=names, mode=m)) for m in ("battery", "cascade"))
    worst = [r.results.budgets[0].ensembles[-1].robust for r in (battery, cascade)]
    assert worst[0] == worst[1]
    assert rows(battery)["saif"].attacked == battery.results.clean.count
    met = [rows(cascade)[name].attacked for name in names]
    assert met == sorted(met, reverse=True)
    assert met[-1] < met[0]
    assert rows(cascade)["saif"].robust is None


def test_each_budget_equals_a_run_of_its_own_on_the_same_images(make_job, toy):
    several = ended(make_job(budgets=(5, 8), count=24, thorough=True))
    assert [b.budget for b in several.results.budgets] == [8, 5]
    for place, budget in enumerate((8, 5)):
        alone = ended(make_job(budgets=(budget,), count=24))
        assert several.results.budgets[place] == alone.results.budgets[0]


def test_smaller_budgets_try_what_fell(make_job, tmp_path):
    job = in_folder(make_job(budgets=(8, 5)), tmp_path / "few")
    report = ended(job)
    worst = report.results.budgets[0].ensembles[-1].robust
    fell = report.results.clean.count - worst.count
    assert 0 < fell < report.results.clean.count
    assert {row.attacked for row in report.results.budgets[1].attacks} == {fell}
    full = ended(in_folder(make_job(budgets=(8, 5), thorough=True), tmp_path / "all"))
    assert {r.attacked for r in full.results.budgets[1].attacks} == {report.results.clean.count}
    # Where both looked, they say the same.
    few, every = ({key_of(v): v for v in read_verdicts(tmp_path / n)} for n in ("few", "all"))
    assert {key: every[key] for key in few} == few


def test_features_are_counted_one_by_one(make_job):
    report = ended(make_job(unit="feature", budgets=(20,), attacks=("sparse-pgd-u",)))
    assert report.results.settings.unit == "feature"
    assert rows(report)["sparse-pgd-u"].median_distance <= 20


def test_order_and_company_of_images_do_not_matter(make_job, toy, tmp_path):
    first = in_folder(make_job(count=40), tmp_path / "a")
    order = torch.tensor(np.random.default_rng(3).permutation(40)[:25])
    subject = first.facts.subject.model_copy(update={"images": 25})
    facts = first.facts.model_copy(update={"subject": subject})
    second = replace(first, data=first.data.subset(order), facts=facts)
    second = in_folder(second, tmp_path / "b")
    ended(first)
    ended(second)
    one, two = ({key_of(v): v for v in read_verdicts(tmp_path / n)} for n in "ab")
    assert two == {key: value for key, value in one.items() if key[2] in set(order.tolist())}


# -- odd inputs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cores", [2, 3])
def test_the_number_of_cores_does_not_matter(make_job, cores):
    """Calls of one thread each, several at once: the same verdicts to the last bit."""
    alone = make_job(attacks=("sparse-pgd-u", "sparse-rs", "guided-swap"))
    torch.set_num_threads(cores)
    together = make_job(attacks=("sparse-pgd-u", "sparse-rs", "guided-swap"))
    assert (alone.oracle.lanes, together.oracle.lanes) == (1, cores)
    assert alone.identity == together.identity
    assert results(ended(alone)) == results(ended(together))
    assert torch.get_num_threads() == cores


def test_all_images_misclassified(make_job, toy):
    report = ended(make_job(labels=(toy.labels[:20] + 1) % 4, images=toy.images[:20]))
    assert report.results.clean.count <= 2
    wrong = ended(make_job(network=Rigid(0), images=toy.images[:9], labels=torch.ones(9).long()))
    assert wrong.results.clean.count == 0
    assert rows(wrong)["sparse-rs"].attacked == 0


class Rigid(nn.Module):
    """Always answers the same."""

    def __init__(self, answer, classes=4):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("logits", nn.functional.one_hot(torch.tensor(answer), classes) * 5.0)

    def forward(self, images):
        return self.scale * self.logits + 0 * images.flatten(1).sum(dim=1, keepdim=True)


def test_nothing_can_be_broken(make_job, toy):
    report = ended(make_job(network=Rigid(2), images=toy.images[:9], labels=torch.full((9,), 2)))
    assert report.results.budgets[0].ensembles[-1].robust.count == 9
    assert rows(report)["sparse-rs"].median_distance is None
    assert {flag.name for flag in report.results.flags if flag.fatal} == {
        "zero-gradients", "unbounded-control",
    }  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 5, 9), (3, 8, 4)])
def test_one_image_grey_or_not_square_with_two_classes(make_job, shape):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        network = nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], 2))
        images = torch.rand(1, *shape)
    label = network(images).argmax(dim=1)
    for budget in (1, shape[1] * shape[2]):
        report = ended(
            make_job(network=network, images=images, labels=label, budgets=(budget,),
                     attacks=("saa", "saif", "sigma-zero", "corner-search"))
        )  # fmt: skip
        assert report.results.clean.count == 1
    assert report.results.budgets[0].ensembles[-1].robust.count == 0  # every pixel may change


@pytest.mark.parametrize("others", [(), ("guided-swap",)])
def test_a_stopped_gradient_is_flagged_and_random_search_still_breaks_it(make_job, toy, others):
    class Stopped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = toy.network

        def forward(self, images):
            return self.inner(images.detach())

    report = ended(
        make_job(network=Stopped(), effort="quick", budgets=(24,), count=24,
                 attacks=("sparse-pgd-u", "sparse-rs", *others))
    )  # fmt: skip
    flags = {flag.name for flag in report.results.flags}
    assert {"zero-gradients", "black-box-beats-white-box"} <= flags
    assert rows(report)["sparse-rs"].broken > rows(report)["sparse-pgd-u"].broken


def test_nan_answers_end_the_evaluation(make_job, toy):
    class Breaks(nn.Module):
        """Fine on clean images, NaN where a pixel is far from them."""

        def __init__(self):
            super().__init__()
            self.inner = toy.network

        def forward(self, images):
            bad = (images == 1).flatten(1).any(dim=1)
            return torch.where(bad[:, None], torch.nan, self.inner(images))

    images = toy.images[:8].clamp(0.1, 0.9)
    job = make_job(network=Breaks(), images=images, labels=toy.labels[:8], budgets=(9,),
                   attacks=("saif",))  # fmt: skip
    with pytest.raises(EvaluationError, match="NaN"):
        list(run_audit(job, ONE, resume=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cheat:
    """Paints every pixel, whatever the budget."""

    kind: ClassVar[str] = "cheat"
    revision: ClassVar[int] = 1
    black_box: ClassVar[bool] = True
    leaves_budget: ClassVar[bool] = False
    efforts: ClassVar[dict[str, dict[str, int]]] = {}
    notes: ClassVar[tuple[str, ...]] = ()
    queries: int = 1

    def passes(self, threat, image_shape, classes):
        return 1

    def start(self, rows):
        return State(**begin(rows))

    def wants_gradient(self, state):
        return torch.zeros_like(state.step, dtype=torch.bool)

    def ask(self, state):
        return 1 - state.image(state.clean)

    def tell(self, state, reply):
        return torch.ones_like(state.step, dtype=torch.bool)


def test_a_cheating_attack_is_caught_and_does_not_count(make_job):
    job = make_job(attacks=("sparse-rs",))
    report = ended(replace(job, attacks=(("sparse-rs", Cheat()),)))
    row = rows(report)["sparse-rs"]
    assert row.violations == row.attacked > 0
    assert row.broken == 0


def test_the_network_is_left_as_it_was(make_job, toy):
    network = toy.network
    network.train()
    network[0].weight.requires_grad_(False)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    seed = torch.random.get_rng_state()
    ended(make_job(count=16))
    assert network.training
    assert not network[0].weight.requires_grad
    assert network[2].weight.requires_grad
    assert all(weight.grad is None for weight in network.parameters())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(seed, torch.random.get_rng_state())
    network.eval().requires_grad_()


# -- resuming --------------------------------------------------------------------------------------


def stopped(job, after, number=signal.SIGTERM, resume=False):
    """Run until ``after`` events have come, then receive a signal."""
    events = []
    for event in run_audit(job, ONE, resume=resume):
        events.append(event)
        if len(events) == after:
            os.kill(os.getpid(), number)
    return events[-1]


@pytest.fixture
def eager(monkeypatch):
    """Events after every call, so that a test can stop anywhere."""
    monkeypatch.setattr("robust0.auditing.run.DRAW_SECONDS", -1.0)
    monkeypatch.setattr("robust0.auditing.run.FLUSH_OUTCOMES", 5)


ROUNDS = {
    "mode": "cascade", "effort": "converged", "tolerance": 0.05, "budgets": (2, 1),
    "attacks": ("guided-swap", "sparse-rs", "sparse-pgd-u"),
    "params": {"guided-swap": {"forwards": 10}, "sparse-rs": {"queries": 10},
               "sparse-pgd-u": {"steps": 3}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({"mode": "battery", "budgets": (8, 5)}, (1, 30, 60)),
        ({"mode": "cascade", "budgets": (8, 5)}, (3, 40, 80)),
        (ROUNDS, (5, 40, 60)),
    ],
    ids=["battery", "cascade", "converged"],
)
def test_signals_leave_a_run_that_ends_as_if_undisturbed(make_job, tmp_path, eager, changes, after):
    given = {**changes, "count": 24}
    whole = results(ended(in_folder(make_job(**given), tmp_path / "whole")))
    job = in_folder(make_job(**given), tmp_path / "cut")
    for number, place in zip((signal.SIGTERM, signal.SIGINT, signal.SIGTERM), after, strict=True):
        event = stopped(make_like(job, make_job, given), place, number, resume=True)
        assert (event.report, event.interrupted) == (None, number)
        assert not (tmp_path / "cut" / "report.json").exists()
    assert results(ended(make_like(job, make_job, given), resume=True)) == whole
    attempts = [(tmp_path / name / store.ATTEMPTS).read_bytes() for name in ("whole", "cut")]
    assert attempts[0] == attempts[1]
    assert not (tmp_path / "cut" / "parts").exists()


def test_two_processes_converge_as_one_does(make_job, tmp_path):
    """Each waits for the other before a round is decided."""
    given = {**ROUNDS, "count": 24}
    whole = ended(in_folder(make_job(**given), tmp_path / "whole"))
    assert max(row.number for row in whole.results.rounds) > 1
    job = in_folder(make_job(**given), tmp_path / "two")
    child = os.fork()
    if child == 0:
        for _ in run_audit(job, World(1, 2), resume=False):
            pass
        os._exit(0)
    *_, last = run_audit(job, World(0, 2), resume=False)
    assert os.waitpid(child, 0)[1] == 0
    assert results(last.report) == results(whole)
    assert not (tmp_path / "two" / "parts").exists()


def make_like(job, make_job, given):
    """A fresh job for the same folder, as a new process would build it."""
    return replace(make_job(**given), folder=job.folder)


def test_a_finished_run_can_be_resumed_and_rebuilt(make_job, tmp_path):
    job = in_folder(make_job(count=24), tmp_path / "run")
    first = ended(job)
    again = ended(job, resume=True)
    assert results(first) == results(again)
    written = (tmp_path / "run" / "report.json").read_bytes()
    (tmp_path / "run" / "report.json").unlink()
    assert results(rebuild_report(tmp_path / "run")) == results(first)
    (tmp_path / "run" / "report.json").write_bytes(written)
    assert rebuild_report(tmp_path / "run") == again
    assert (tmp_path / "run" / "report.json").read_bytes() == written


def test_an_unfinished_run_has_no_report(make_job, tmp_path, eager):
    job = in_folder(make_job(count=24), tmp_path / "run")
    stopped(job, 20)
    with pytest.raises(RunError, match="not finished") as caught:
        rebuild_report(tmp_path / "run")
    assert "--resume" in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "seed"),
        ({"recipe": "another"}, "recipe"),
        ({"count": 23}, "data fingerprint .*image ids"),
        ({"budgets": (7,)}, "budgets"),
        ({"thorough": True}, "thorough"),
        ({"rows": 32}, "images per call"),
        ({"precision": "bf16"}, "search precision"),
        ({"compile": True}, "compile"),
        ({"attacks": ("sparse-rs",)}, "attack revisions"),
        ({"identity": "other weights"}, "model"),
    ],
)
def test_another_job_cannot_resume_it(make_job, tmp_path, changes, named):
    asked = {"count": 24, "precision": "fp32"}
    in_folder(make_job(**asked), tmp_path / "run")
    other = replace(make_job(**(asked | changes)), folder=tmp_path / "run")
    with pytest.raises(RunError, match=named) as caught:
        next(run_audit(other, ONE, resume=True))
    assert "start a new run" in caught.value.hint


@pytest.mark.parametrize(
    "name", ["torch version", "device", "threads per call (OMP_NUM_THREADS)", "attack revisions"]
)
def test_another_machine_cannot_resume_it(make_job, tmp_path, name):
    job = make_job(count=24)
    in_folder(replace(job, identity={**job.identity, name: "other"}), tmp_path / "run")
    with pytest.raises(RunError) as caught:
        next(run_audit(replace(job, folder=tmp_path / "run"), ONE, resume=True))
    assert f"another {name} (was other" in caught.value.message


def test_progress_shows_the_latest_hit(make_job, toy, monkeypatch):
    monkeypatch.setattr("robust0.auditing.run.DRAW_SECONDS", 0.0)
    job = make_job(attacks=("sparse-rs",))
    events = [
        event for event in run_audit(job, ONE, resume=False) if isinstance(event, AuditProgress)
    ]
    hits = [event.hit for event in events if event.hit is not None]
    assert hits
    for hit in hits:
        clean, broken = (
            np.frombuffer(pixels, np.uint8).reshape(hit.shape)
            for pixels in (hit.clean, hit.adversarial)
        )
        place = job.data.ids.tolist().index(hit.image)
        assert np.array_equal(clean, toy.pixels[place].numpy())
        assert 0 < (clean != broken).any(axis=0).sum() <= job.plan.budgets[0]
        assert hit.label != hit.prediction
