"""When a reading on reserved images is catastrophic overfitting, and when it is not."""

import pytest

from robust0.training.watch import Reading, alarm


def says(clean, attacked, probe, *, best=-1.0, classes=10, collapse=0.05):
    return alarm(Reading(200, clean, attacked, probe), best, classes, collapse)


@pytest.mark.parametrize(
    ("reading", "settings"),
    [
        ((0.24, 0.18, 0.10), {}),  # an early epoch that goes well
        ((0.12, 0.11, 0.00), {}),  # hardly above chance: no accuracy to lose
        ((0.04, 0.035, 0.03), {"classes": 100}),  # the same with many classes
        ((0.08, 0.06, 0.04), {"classes": 100}),
        ((0.04, 0.035, 0.03), {"classes": 43}),
        ((0.52, 0.53, 0.50), {"classes": 2}),  # two classes: chance is a half
        ((0.70, 0.715, 0.60), {}),  # within sampling noise
        ((0.70, 0.60, 0.30), {"best": 0.6}),  # half of the best is a bad epoch, not a collapse
        ((0.90, None, 0.00), {"best": 0.15}),  # trained without an attack
    ],
)
def test_healthy_runs_are_left_alone(reading, settings):
    assert says(*reading, **settings) is None


@pytest.mark.parametrize(
    ("reading", "settings", "reason"),
    [
        ((0.70, 0.80, 0.50), {}, "exceeds clean"),
        ((0.12, 0.95, 0.00), {"best": 0.55}, "exceeds clean"),  # clean accuracy fell as well
        ((0.72, 0.98, 0.00), {"classes": 2}, "exceeds clean"),
        ((0.70, 0.60, 0.04), {}, "collapsed to 4.0%"),
        ((0.12, 0.05, 0.05), {"classes": 100, "collapse": 0.06}, "collapsed"),
        ((0.70, 0.60, 0.27), {"best": 0.6}, "fell from 60.0% to 27.0%"),
        ((0.11, 0.10, 0.06), {"best": 0.55}, "fell from"),
    ],
)
def test_collapses_are_seen(reading, settings, reason):
    assert reason in says(*reading, **settings)
