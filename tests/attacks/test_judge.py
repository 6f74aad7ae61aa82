import pytest
import torch
from torch import nn

from robust0.attacks.judge import FRAGILE, judge
from robust0.errors import EvaluationError
from robust0.models.fast.oracle import Oracle
from robust0.threats import Threat


class FirstPixel(nn.Module):
    """Class 1 leads by what the first pixel holds beyond a half, in all channels together."""

    def forward(self, images):
        lead = images[:, :, 0, 0].sum(dim=1) - 1.5
        return torch.stack([-lead / 2, lead / 2], dim=1)


CLEAN = torch.zeros(1, 3, 2, 3)
LABEL = torch.zeros(1, dtype=torch.int64)


def verdict_on(candidate, threat=None, model=None):
    oracle = Oracle(model or FirstPixel(), 16, torch.device("cpu"))
    return judge(oracle, threat or Threat.of(2), CLEAN, candidate, LABEL)


def with_pixels(*places, value=1.0):
    image = CLEAN.clone()
    for row, column in places:
        image[0, :, row, column] = value
    return image


def test_a_feasible_misclassification_counts():
    verdict = verdict_on(with_pixels((0, 0), (1, 2)))
    assert verdict.fooled.tolist() == [True]
    assert verdict.prediction.tolist() == [1]
    assert verdict.margin.tolist() == [-1.5]
    assert verdict.distance.tolist() == [2]
    assert verdict.violation == ("",)


def test_a_correct_prediction_is_no_hit_and_no_violation():
    verdict = verdict_on(with_pixels((1, 0)))
    assert not verdict.fooled.any()
    assert verdict.violation == ("",)


@pytest.mark.parametrize(
    ("candidate", "violation"),
    [
        (with_pixels((0, 0), (0, 1), (0, 2)), "beyond the budget"),
        (with_pixels((0, 0), value=1.0001), "outside [0, 1]"),
        (with_pixels((0, 0)) - with_pixels((0, 1), value=1e-6), "outside [0, 1]"),
        (with_pixels((0, 0), value=float("nan")), "not finite"),
        (with_pixels((0, 0), value=float("inf")), "not finite"),
    ],
)
def test_whatever_breaks_the_rules_is_not_a_hit(candidate, violation):
    verdict = verdict_on(candidate)
    assert not verdict.fooled.any()
    assert verdict.violation == (violation,)


def test_sites_are_counted_in_the_unit_of_the_threat():
    candidate = with_pixels((0, 0))
    assert verdict_on(candidate, Threat.of(2, "feature")).violation == ("beyond the budget",)
    assert verdict_on(candidate, Threat.of(3, "feature")).fooled.all()


def test_close_calls_are_fragile_on_both_sides():
    for value, fooled in ((0.5 + FRAGILE / 6, True), (0.5 - FRAGILE / 6, False)):
        verdict = verdict_on(with_pixels((0, 0), value=value))
        assert verdict.fragile.all()
        assert bool(verdict.fooled) == fooled
    assert not verdict_on(with_pixels((0, 0))).fragile.any()


@pytest.mark.parametrize("factor", [1e-4, 1.0, 1e4])
def test_what_is_close_follows_the_scale_of_the_logits(factor):
    class Scaled(FirstPixel):
        def forward(self, images):
            return factor * super().forward(images)

    # The clean image's logits are 0.75 and its opposite.
    for lead, fragile in ((0.7e-3, True), (0.8e-3, False)):
        verdict = verdict_on(with_pixels((0, 0), value=0.5 + lead / 3), model=Scaled())
        assert verdict.fooled.all()
        assert bool(verdict.fragile) == fragile


def test_equal_logits_are_fragile():
    class Constant(nn.Module):
        def forward(self, images):
            return torch.ones(len(images), 3)

    assert verdict_on(with_pixels((0, 0)), model=Constant()).fragile.all()


def test_logits_that_are_not_finite_end_the_evaluation():
    class Broken(nn.Module):
        def forward(self, images):
            return images.flatten(1)[:, :2] * torch.nan

    with pytest.raises(EvaluationError, match="NaN"):
        verdict_on(with_pixels((0, 0)), model=Broken())


def test_the_verdict_is_that_of_the_eager_network():
    oracle = Oracle(FirstPixel(), 16, torch.device("cpu"))
    oracle._free.get()
    oracle._free.put(lambda images: (FirstPixel()(1 - images),) * 2)
    verdict = judge(oracle, Threat.of(2), CLEAN, with_pixels((0, 0)), LABEL)
    assert verdict.fooled.all()
    assert oracle.calls == 0
