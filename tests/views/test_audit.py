import io

import pytest
from rich.console import Console

from robust0.auditing.interval import accuracy
from robust0.events import (
    AttackCost,
    AttackDone,
    AuditFinished,
    AuditPlanned,
    AuditProgress,
    AuditStarted,
    CleanDone,
    FlagRaised,
    Standing,
)
from robust0.records import Flag
from robust0.views.audit import LiveAuditView, PlainAuditView, Remaining, audit_view
from robust0.views.audit_plan import duration, show_plan
from robust0.views.output import ReportFormat

ATTACKS = ("sparse-pgd-p", "sparse-rs", "guided-swap")
STARTED = AuditStarted(
    "thin fast-ls-l0 · cifar10 test, 1,000 images · 20 pixels · quick · seed 0", 1000, "pixel",
    (20, 10), ATTACKS, False, 0, "runs/x",
)  # fmt: skip
CLEAN = CleanDone(accuracy(724, 1000))
FLAG = FlagRaised(Flag(name="probabilities", fatal=True, message="the outputs are probabilities"))


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def standing(attack, share, broken=193, *, cascade=False):
    if not share:
        return Standing(attack, 0, 0, 0, 0, None, None, 0.0)
    robust = None if cascade else accuracy(724 - broken, 1000)
    return Standing(attack, 724, int(724 * share), broken, 4, robust, 148.0, share)


def progress(share=0.61, budget=20, *, cascade=False, survivors=498):
    standings = (
        standing("sparse-pgd-p", 1.0, cascade=cascade),
        standing("sparse-rs", 0.58, 154, cascade=cascade),
        standing("guided-swap", 0.0),
    )
    return AuditProgress(budget, share, accuracy(survivors, 1000), standings)


DONE = AttackDone(20, "pixel", standing("sparse-pgd-p", 1.0), accuracy(531, 1000), 75.0)


def drawn(view, width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(view)
    return console.file.getvalue()


def watched(*events, clock=None):
    view = LiveAuditView(clock or Clock())
    for event in events:
        view.show(event)
    return view


@pytest.mark.parametrize("width", [100, 84, 60])
def test_everything_fits_and_names_its_numbers(width):
    view = watched(STARTED, CLEAN, FLAG, progress(0.3), progress())
    text = drawn(view, width)
    assert max(len(line) for line in text.splitlines()) <= width
    flat = " ".join(text.split())
    assert "clean 72.4 %" in flat
    assert "61%" in flat
    assert "sparse-pgd-p" in flat
    assert "done 53.1 %" in flat
    assert "58% ≤ 57.0 %" in flat
    assert "guided-swap waiting" in flat
    assert "worst case so far at 20 ≤ 49.8 %" in flat
    assert "! probabilities: the outputs are probabilities" in flat
    assert ("50.0 - 56.2" in flat) is (width >= 84)
    assert ("it alone" in flat) is (width >= 84)
    rows = [line for line in text.splitlines() if line.startswith(ATTACKS)]
    assert len(rows) == 3  # no row is folded


def test_a_very_narrow_terminal_does_not_fail():
    assert "sparse-rs" in drawn(watched(STARTED, CLEAN, progress()), 20).replace("\n", "")


def test_the_end_of_the_work_is_estimated():
    clock = Clock()
    view = watched(STARTED, CLEAN, progress(0.1), clock=clock)
    assert "-:-- left" in drawn(view, 100)
    clock.now = 60.0
    view.show(progress(0.4))
    assert "2:00 left" in drawn(view, 100)  # 0.3 of the work took a minute
    view.show(progress(1.0))
    assert "left" not in drawn(view, 100)


def test_the_estimate_counts_from_where_a_resumed_run_began():
    clock = Clock()
    remaining = Remaining(clock)
    assert remaining.left(0.8) is None
    clock.now = 10
    assert remaining.left(0.9) == pytest.approx(10)


def test_survivors_are_charted_per_budget():
    shares = (1000, 800, 600, 400, 0)
    view = watched(STARTED, CLEAN, *(progress(0.1, survivors=s) for s in shares))
    lines = drawn(view, 100).splitlines()
    top = next(at for at, line in enumerate(lines) if line.startswith("survivors"))
    assert [line[11:15] for line in lines[top : top + 4]] == ["█▂  ", "██▃ ", "███▅", "████"]
    view.show(DONE)
    view.show(progress(0.7, budget=10, survivors=1000))
    text = drawn(view, 100)
    assert "worst case so far at 10 ≤ 100.0 %  (20: 53.1 %)" in text


def test_a_cascade_shows_who_was_met():
    started = AuditStarted("t", 1000, "pixel", (20,), ATTACKS, True, 0, None)
    text = drawn(watched(started, CLEAN, progress(cascade=True)), 100)
    assert "met" in text
    assert "95 %" not in text


def test_before_the_first_attack():
    assert "starting" in drawn(watched(), 60)
    assert "classifying clean images" in drawn(watched(STARTED), 60)
    assert "checking the model" in drawn(watched(STARTED, CLEAN), 60)


def test_the_end_says_where_or_how_to_go_on():
    assert "finished in runs/x" in drawn(watched(STARTED, AuditFinished(None, "runs/x", None)), 60)
    cut = AuditFinished(None, "runs/x", 15)
    assert "robust0 audit --resume runs/x" in drawn(watched(STARTED, cut), 100)


def plain(*events, clock=None):
    console = Console(file=io.StringIO(), width=100, color_system=None)
    view = PlainAuditView(console, clock or Clock())
    for event in events:
        view.show(event)
    return console.file.getvalue()


def test_plain_lines_one_per_attack():
    text = plain(STARTED, CLEAN, FLAG, progress(), progress(), DONE, AuditFinished(None, "x", None))
    lines = text.splitlines()
    assert lines[0].startswith("robust0 audit · thin fast-ls-l0")
    assert lines[1] == "clean: 72.4 % (69.5 - 75.1)"
    assert lines[2] == "! probabilities: the outputs are probabilities"
    assert lines[3] == (
        "sparse-pgd-p at 20 pixels: robust 53.1 % (50.0 - 56.2), broke 193 of 724 "
        "(4 that no other did), "
        "median 148 passes per image, 1:15; worst case so far 53.1 %"
    )
    assert lines[4:] == ["finished in x"]


def test_plain_lines_one_per_minute():
    clock = Clock()
    console = Console(file=io.StringIO(), width=100, color_system=None)
    view = PlainAuditView(console, clock)
    view.show(STARTED)
    for second in range(0, 181, 5):
        clock.now = float(second)
        view.show(progress(0.1 + second / 1000))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[1] == (
        "16% done, sparse-rs 58%; worst case so far at 20: at most 49.8 %; 14:00 left"
    )


def test_a_resumed_run_says_what_was_there():
    resumed = AuditStarted("t", 10, "pixel", (20,), ATTACKS, False, 1234, "x")
    assert "1,234 verdicts were already there" in plain(resumed)
    assert "1,234 verdicts were already there" in drawn(watched(resumed), 100)


def test_without_a_terminal_the_view_is_plain():
    with audit_view() as view:
        assert isinstance(view, PlainAuditView)


PLANNED = AuditPlanned(
    "title", (("model", "a.safetensors"), ("data", "cifar10\x1b[31m")), ("a note",),
    ("CIFAR-10 is not in the cache",),
    (AttackCost("sparse-rs", 20, 1000, 60.0), AttackCost("sparse-rs", 10, 1000, 60.0)),
    120.0, 5000.0, 1500.0, 2,
)  # fmt: skip


def test_the_plan_names_costs_and_warnings(capfd):
    show_plan(PLANNED, ReportFormat.AUTO)
    captured = capfd.readouterr()
    assert captured.out == ""
    flat = " ".join(captured.err.split())
    assert "warning: CIFAR-10 is not in the cache" in flat
    assert "sparse-rs (1,000)" in flat
    assert "at most about 2 min" in flat
    assert "2 processes" in flat
    assert "a note" in flat
    assert "\x1b[31m" not in captured.err


def test_the_plan_is_the_data_of_a_dry_run(capfd):
    show_plan(PLANNED, ReportFormat.RICH, as_data=True)
    assert "a.safetensors" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (89, "89 s"), (100, "2 min"), (5400, "1:30:00 h"), (400_000, "4.6 days")],
)
def test_durations_are_rough(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize("width", [160, 100, 60])
@pytest.mark.parametrize("above", [0, 8])
def test_nothing_is_cut_from_thirty_lines(width, above):
    from dataclasses import replace

    from robust0.events import HitFound

    pixels = bytes(3 * 32 * 32)
    hit = HitFound("saif", 1, "cat", "dog", "1 pixel", (3, 32, 32), pixels, b"\xff" + pixels[1:])
    view = LiveAuditView(Clock())
    for event in (STARTED, CLEAN, FLAG, replace(progress(), hit=hit)):
        view.show(event)
    view.above = above
    console = Console(
        file=io.StringIO(), width=width, height=30, force_terminal=True, color_system="truecolor"
    )
    console.print(view)
    text = console.file.getvalue()
    assert text.count("\n") < 30 - above
    assert "outputs are probabilities" in text
    assert "alone" in text
    assert "▀" in text
