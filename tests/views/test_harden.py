"""The training views, fed with recorded events, at fixed widths and with a hand-moved clock."""

import io
from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
from rich.console import Console

from robust0.events import (
    EpochDone,
    FineTuned,
    OverfittingSeen,
    Saved,
    StepDone,
    Ticked,
    TrainFinished,
    TrainPlanned,
    TrainStarted,
    Watching,
)
from robust0.views.chart import block_curve, line_chart
from robust0.views.curves import curves, draw_curves
from robust0.views.harden import LiveTrainView, PlainTrainView, clock, heading, price, train_view
from robust0.views.harden_plan import show_training_plan

STARTED = TrainStarted("net · fast-ls-l0 · toy", 900, 4, 10, 0, 64, 1, ("patch_size=2",), "a probe")
STEP = StepDone(12, 1, 1.5, {"clean": 1.2, "divergence": 0.3}, 0.5, 0.25, 0.05, 0.9, 123.4, 2**30)
EPOCH = EpochDone(1, 10, 40, 0.625, 0.5, 0.25, "guided-swap at 20 pixels", best=True)
ALARM = OverfittingSeen(1, "probe accuracy collapsed to 0.0%")
STOPPED = TrainFinished("runs/a", 12, None, 15)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def screen(view, width):
    console = Console(file=io.StringIO(), width=width, record=True, force_terminal=True)
    console.print(view)
    return console.export_text()


@pytest.mark.parametrize("width", [40, 60, 100])
def test_the_live_view_shows_everything_at_any_width(width):
    time = Clock()
    view = LiveTrainView(time)
    assert "starting" in screen(view, width)
    view.show(STARTED)
    time.now = 24.0
    for event in (Ticked(12), STEP, EPOCH):
        view.show(event)
    text = screen(view, width)
    assert max(len(line) for line in text.splitlines()) <= width
    flat = " ".join(text.split())
    assert "12/40 steps" in flat
    assert "0:56 left" in flat  # 24 s for 12 of 40 steps
    assert "2/4" in flat
    assert "123 images/s" in flat
    assert "clean 62.5%" in flat
    assert "no sign of catastrophic overfitting" in flat
    view.show(ALARM)
    assert "collapsed" in " ".join(screen(view, width).split())


def test_the_live_view_gives_no_all_clear_before_a_check_and_says_when_it_checks():
    view = LiveTrainView(Clock())
    for event in (STARTED, Ticked(9), STEP):
        view.show(event)
    text = screen(view, 100)
    assert "not yet checked for catastrophic overfitting" in text
    assert "no sign" not in text
    view.show(Watching("sparse-rs", 3, 40))
    assert "checking for catastrophic overfitting: sparse-rs, 3 of 40" in screen(view, 100)
    view.show(EPOCH)
    assert "no sign of catastrophic overfitting" in screen(view, 100)
    view.show(ALARM)
    view.show(Watching("sparse-rs", 0, 40))
    assert "collapsed" in screen(view, 100)  # an alarm stays in sight


def test_a_check_says_once_that_the_run_stops_after_it():
    """Ctrl-C during a check takes effect at its end; nobody should wait without a word."""
    event, view = Watching("sparse-rs", 3, 40, stopping=True), LiveTrainView(Clock())
    view.show(STARTED)
    view.show(event)
    assert "then the run stops (Ctrl-C again: at once)" in screen(view, 120)
    out = io.StringIO()
    plain = PlainTrainView(Console(file=out, width=200), Clock())
    for _ in range(3):
        plain.show(event)
    assert out.getvalue().count("then the run stops") == 1


def test_the_live_view_knows_of_checks_before_a_resumption_and_of_none_at_all():
    view = LiveTrainView(Clock())
    view.show(replace(STARTED, checked=True))
    assert "no sign of catastrophic overfitting" in screen(view, 100)
    view.show(replace(STARTED, probe=""))
    assert "is not watched for" in screen(view, 100)


def test_the_plain_view_speaks_once_a_minute_and_once_an_epoch():
    out, time = io.StringIO(), Clock()
    view = PlainTrainView(Console(file=out, width=40), time)
    for event in (STARTED, Ticked(1), STEP, Saved("x/snapshot-1.safetensors", "snapshot")):
        view.show(event)
    assert len(out.getvalue().splitlines()) == 2  # the heading and one note
    time.now = 61.0
    for event in (STEP, STEP, EPOCH, ALARM, Saved("x/best.safetensors", "best"), STOPPED):
        view.show(event)
    lines = out.getvalue().splitlines()[2:]
    assert [line.split()[0] for line in lines] == [
        "step",
        "epoch",
        "warning:",
        "saved",
        "interrupted",
    ]
    assert "robust0 harden --resume runs/a" in lines[-1]


def test_fine_tuning_says_what_it_did_and_warns_of_what_it_cost():
    change = FineTuned(100, 0.81, 0.62, 0.55, 0.4, 0)
    out = io.StringIO()
    PlainTrainView(Console(file=out, width=40)).show(TrainFinished("a", 7, None, None, change))
    text = out.getvalue()
    assert "clean 81.0% -> 62.0%, probe 55.0% -> 40.0%" in text
    assert "warning: clean accuracy fell by 19.0 points" in text
    assert "best.safetensors is from before the first step" in text
    view = LiveTrainView(Clock())
    for event in (STARTED, TrainFinished("a", 7, None, None, change)):
        view.show(event)
    assert "fell by 19.0 points" in view.last_words().plain
    assert price(TrainFinished("a", 7, None, None, replace(change, clean=0.8))) == ""


def test_the_end_stands_below_the_picture_with_paths_in_one_piece(monkeypatch):
    folder = "runs/" + 70 * "a-" + "b"
    monkeypatch.setattr("robust0.views.live.err", lambda: console)
    for signal, words, style in (
        (None, f"finished after 12 steps in {folder}", "2"),
        (2, f"interrupted at step 12; go on with robust0 harden --resume {folder}", "1"),
    ):
        console = Console(
            file=io.StringIO(), width=60, force_terminal=True, color_system="standard"
        )
        with train_view() as view:
            for event in (STARTED, Ticked(12), STEP, TrainFinished(folder, 12, None, signal)):
                view.show(event)
        last = console.file.getvalue().splitlines()[-1]
        assert f"\x1b[{style}m{words}\x1b[0m" in last


def test_an_epoch_is_one():
    assert "1 epoch of 10 x 64" in heading(replace(STARTED, epochs=1))


@pytest.mark.parametrize(("terminal", "lines"), [(True, 2), (False, 1)])
def test_the_cost_is_not_broken_within_a_word(terminal, lines, monkeypatch):
    plan = TrainPlanned("net", "cpu", 900, 1, 7, 128, 1, 7.0, 20.0, ())
    console = Console(file=io.StringIO(), width=60, force_terminal=terminal)
    monkeypatch.setattr("robust0.views.output.err", lambda: console)
    show_training_plan(plan)
    said = console.file.getvalue()
    assert len(said.splitlines()) == lines
    assert "overfitting watch" in " ".join(said.split())


def test_a_run_of_days_on_a_cpu_is_announced_with_a_smaller_recipe(capsys):
    plan = TrainPlanned("net", "cpu", 49_000, 100, 382, 128, 1, 872 * 3600.0, 600.0, ())
    show_training_plan(plan)
    said = capsys.readouterr().err
    assert "this takes about 36.3 days on this CPU" in said
    assert "robust0 harden --recipe quick" in said
    show_training_plan(replace(plan, device="cuda"))
    show_training_plan(replace(plan, training_seconds=600.0))
    assert "quick" not in capsys.readouterr().err


def test_the_chart_puts_values_on_their_rows():
    chart = line_chart({"clean": [1.0, 0.0], "probe": [None, 0.0]}, {}, width=40, height=3)
    rows = chart.plain.splitlines()
    assert rows[0].startswith("100 % c")
    assert rows[2].startswith("  0 % ")
    assert "c" in rows[2]
    assert "p" in rows[2]
    assert rows[3].split() == ["c", "clean", "p", "probe"]


def test_a_curve_of_blocks_keeps_its_ends():
    assert block_curve([0.0, 0.5, 1.0], 10, 1) == [" ▄█"]
    (long,) = block_curve([1 - n / 999 for n in range(1000)], 10, 1)
    assert (len(long), long[0], long[-1]) == (10, "█", " ")


def test_clock():
    assert [clock(s) for s in (None, 5, 65, 3661)] == ["-:--", "0:05", "1:05", "1:01:01"]


def test_curves_are_drawn_from_the_metrics_alone(tmp_path):
    """One epoch of two steps shows points on both sides."""
    records = [
        {"event": "step", "step": 2, "loss": 2.0, "losses": [2.5, 1.5]},
        {
            "event": "epoch",
            "epoch": 1,
            "clean": 0.5,
            "training_attack": None,
            "probe": 0.2,
            "probe_name": "p",
        },
    ]
    draw_curves(records, tmp_path / "curves.png", "a title")
    for axes in curves(records, "a title").axes:
        low, high = axes.get_xlim()
        ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
        assert ticks
        assert all(tick == round(tick) for tick in ticks)
    draw_curves([], tmp_path / "empty.png", "nothing yet")
    picture, empty = (plt.imread(tmp_path / f"{name}.png") for name in ("curves", "empty"))
    middle = picture.shape[1] // 2
    for half in (slice(0, middle), slice(middle, None)):
        assert coloured(picture[:, half]) > coloured(empty[:, half]) + 50


def coloured(pixels):
    return int((pixels[..., :3].max(axis=-1) - pixels[..., :3].min(axis=-1) > 0.3).sum())
