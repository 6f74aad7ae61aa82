"""When a reading on reserved images is catastrophic overfitting, and when it is not."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from robust0.attacks.guided_swap import GuidedSwap
from robust0.attacks.sparse_rs import SparseRS
from robust0.events import Watching
from robust0.threats import Threat
from robust0.training import watch
from robust0.training.job import Watch
from robust0.training.watch import Reading, alarm
from tests.training.conftest import make_job


def says(clean, attacked, probe, *, flips=0.1, best=-1.0, classes=10, collapse=0.05):
    return alarm(Reading(200, clean, attacked, probe, flips), best, classes, collapse)


@pytest.mark.parametrize(
    ("reading", "settings"),
    [
        ((0.24, 0.18, 0.10), {}),  # an early epoch that goes well
        ((0.20, 0.05, 0.00), {}),  # three steps: it falls to any attack
        ((0.36, 0.25, 0.03), {}),
        ((0.80, 0.05, 0.00), {}),  # no robustness, and the training attack knows
        ((0.12, 0.11, 0.00), {}),  # hardly above chance: no accuracy to lose
        ((0.04, 0.035, 0.03), {"classes": 100}),  # the same with many classes
        ((0.08, 0.06, 0.04), {"classes": 100}),
        ((0.04, 0.035, 0.03), {"classes": 43}),
        ((0.52, 0.53, 0.50), {"classes": 2}),  # two classes: chance is a half
        ((0.70, 0.715, 0.60), {}),  # within sampling noise
        ((0.70, 0.60, 0.30), {"best": 0.6}),  # half of the best is a bad epoch, not a collapse
        ((0.70, 0.74, 0.50), {"flips": 0.12}),  # 8 of 24 images that changed sides: chance
        ((0.42, 0.46, 0.32), {"flips": 0.05}),  # 9 of 10: one reading in many, and it passed
        ((0.90, None, 0.00), {"best": 0.15}),  # trained without an attack
    ],
)
def test_healthy_runs_are_left_alone(reading, settings):
    assert says(*reading, **settings) is None


@pytest.mark.parametrize(
    ("reading", "settings", "reason"),
    [
        ((0.70, 0.80, 0.50), {}, "exceeds clean"),
        ((0.70, 0.75, 0.50), {"flips": 0.05}, "exceeds clean"),  # all that changed, one way
        ((0.12, 0.95, 0.00), {"best": 0.55}, "exceeds clean"),  # clean accuracy fell as well
        ((0.72, 0.98, 0.00), {"classes": 2}, "exceeds clean"),
        ((0.70, 0.60, 0.04), {}, "collapsed to 4.0%"),
        ((0.42, 0.40, 0.05), {"classes": 100, "collapse": 0.06}, "collapsed"),
        ((0.70, 0.60, 0.27), {"best": 0.6}, "fell from 60.0% to 27.0%"),
        ((0.11, 0.10, 0.06), {"best": 0.55}, "fell from"),
    ],
)
def test_collapses_are_seen(reading, settings, reason):
    assert reason in says(*reading, **settings)


class Masked(nn.Module):
    """Tells classes apart by counts of bright values: a step function, without a slope."""

    def forward(self, images):
        counts = (images > 0.5).float().sum(dim=(2, 3))
        return counts + 0 * images.sum(dim=(1, 2, 3))[:, None] * self.weight

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))


def reading(job, *attacks):
    looking = watch.read(
        job.network, job.data, job.reserved, job.method,
        Watch(attacks, Threat.of(4), 16, 1, 0.0, stop=False), 0,
    )  # fmt: skip
    said = []
    while True:
        try:
            said.append(next(looking))
        except StopIteration as end:
            return end.value, said


def test_the_probe_counts_images_that_neither_attack_breaks(tmp_path):
    """Where there is no gradient to follow, random search breaks what guided-swap leaves."""
    job = replace(make_job(tmp_path / "run"), network=Masked())
    swap, search = ("guided-swap", GuidedSwap(forwards=12)), ("sparse-rs", SparseRS(queries=150))
    first, second = (reading(job, attack)[0].probe for attack in (swap, search))
    both, said = reading(job, swap, search)
    assert second < first
    assert both.probe <= min(first, second)
    left = [event for event in said if event.attack == "sparse-rs"]
    assert left[0] == Watching("sparse-rs", 0, round(16 * first))
    assert left[-1] == Watching("sparse-rs", round(16 * first), round(16 * first))
    assert reading(job, search, swap)[0].probe == both.probe
