"""Delta, the bounds and the two conditions against enumeration and exact binomial tails."""

from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.certificates.ablation import Ablation, delta, lower_bound, survived, upper_bound
from robust0.errors import EvaluationError, RecipeError


def tail(count, samples, share):
    """P(at least ``count``), exactly."""
    return sum(
        comb(samples, k) * share**k * (1 - share) ** (samples - k)
        for k in range(count, samples + 1)
    )


@pytest.mark.parametrize("pixels", [1, 4, 7])
def test_delta_is_the_share_of_subsets_that_show_a_changed_pixel(pixels):
    for keep in range(1, pixels + 1):
        subsets = [set(kept) for kept in combinations(range(pixels), keep)]
        for changed in range(pixels + 1):
            hit = sum(not kept.isdisjoint(range(changed)) for kept in subsets)
            assert delta(pixels, keep, changed) == Fraction(hit, len(subsets))


def test_delta_refuses_more_changes_than_pixels():
    with pytest.raises(EvaluationError):
        delta(4, 2, 5)


@pytest.mark.parametrize(("keep", "most"), [(75, 9), (34, 20)])
def test_a_certain_answer_survives_no_more_than_is_known(keep, most):
    assert survived(1024, keep, Fraction(1)) == most


@settings(max_examples=150)
@given(st.data(), st.integers(1, 9))
def test_survived_is_the_last_that_holds_and_equality_does_not(data, pixels):
    keep = data.draw(st.integers(1, pixels))
    at = data.draw(st.integers(1, pixels))
    equal = 2 * delta(pixels, keep, at)
    for gap in (equal, equal + Fraction(1, 10**30), equal - Fraction(1, 10**30)):
        holds = [r for r in range(pixels + 1) if 2 * delta(pixels, keep, r) < gap]
        if gap <= 2:  # no two probabilities are further apart than 1
            assert survived(pixels, keep, gap) == max(holds)
            assert holds == list(range(len(holds)))


@pytest.mark.parametrize("samples", [1, 7, 60])
@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.3])
def test_the_bounds_are_on_the_safe_side_of_the_exact_ones_and_close(samples, alpha):
    for count in range(samples + 1):
        low = Fraction(lower_bound(count, samples, alpha))
        high = Fraction(upper_bound(count, samples, alpha))
        assert 0 <= low <= Fraction(count, samples) <= high <= 1
        step = Fraction(1, 10**8)
        if count:
            assert tail(count, samples, low) < Fraction(alpha) < tail(count, samples, low + step)
        if count < samples:
            below = samples - count
            assert tail(below, samples, 1 - high) < Fraction(alpha)
            assert Fraction(alpha) < tail(below, samples, 1 - high + step)


@pytest.mark.parametrize("share", [0.03, 0.5, 0.9])
def test_the_bounds_cover_as_often_as_they_say(share):
    samples, alpha, trials = 80, 0.1, 4000
    draw = torch.Generator().manual_seed(7)
    counts = (torch.rand(trials, samples, generator=draw) < share).sum(dim=1).tolist()
    lows = [lower_bound(count, samples, alpha) for count in range(samples + 1)]
    highs = [upper_bound(count, samples, alpha) for count in range(samples + 1)]
    for missed in (sum(lows[n] > share for n in counts), sum(highs[n] < share for n in counts)):
        assert missed / trials < alpha + 3 * (alpha * (1 - alpha) / trials) ** 0.5
    # Not by being useless: at one half the bound is nearly met.
    if share == 0.5:
        assert sum(lows[n] > share for n in counts) / trials > alpha / 2


def smoothed_can_change(pixels, keep, changed, ours, theirs):
    """Whether some relabelling of the subsets that show a changed pixel dethrones class 0.

    ``ours`` subsets are labelled 0 and ``theirs`` 1; the attack may choose which subsets it meets.
    """
    total = comb(pixels, keep)
    met = total - comb(pixels - changed, keep)
    lost = min(met, ours)
    return ours - lost <= theirs - max(0, met - (total - theirs)) + met


@settings(max_examples=200)
@given(st.data(), st.integers(2, 8))
def test_the_gap_is_exact_when_probabilities_are_known(data, pixels):
    keep = data.draw(st.integers(1, pixels - 1))
    total = comb(pixels, keep)
    ours = data.draw(st.integers(1, total))
    theirs = data.draw(st.integers(0, min(total - ours, ours - 1)))
    radius = survived(pixels, keep, Fraction(ours - theirs, total))
    for changed in range(pixels + 1):
        stays = not smoothed_can_change(pixels, keep, changed, ours, theirs)
        assert stays == (changed <= radius)


def test_no_change_within_the_radius_dethrones_the_smoothed_class():
    """Every image of five pixels, seen two at a time: the smoothed classifier itself."""
    pixels, keep = 5, 2
    subsets = torch.tensor(list(combinations(range(pixels), keep)))
    cells = torch.cartesian_prod(*[torch.arange(3)] * pixels)
    apart = (cells[:, None] != cells[None]).sum(dim=2)
    proved = 0
    for seed in range(20):
        draw = torch.Generator().manual_seed(seed)
        table = torch.randint(0, 12, (len(subsets), 9), generator=draw).clamp(min=8) - 8
        seen = cells[:, subsets]  # (N, S, keep)
        labels = table[torch.arange(len(subsets)), seen[..., 0] * 3 + seen[..., 1]]
        counts = torch.nn.functional.one_hot(labels, 4).sum(dim=1)
        top = counts.topk(2, dim=1)
        for image in range(len(cells)):
            gap = Fraction(int(top.values[image, 0] - top.values[image, 1]), len(subsets))
            if gap > 0:
                radius = survived(pixels, keep, gap)
                proved += radius > 0
                near = counts[apart[image] <= radius]
                mine = int(top.indices[image, 0])
                others = near.clone()
                others[:, mine] = -1
                assert (near[:, mine] > others.amax(dim=1)).all()
    assert proved > 20


def setting(**changes):
    return Ablation(**{"pixels": 1024, "keep": 34, "choose": 10, "bound": 1000} | changes)


@settings(max_examples=150)
@given(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from(["half", "gap"]))
def test_a_certificate_is_the_condition_in_exact_numbers(mine, rest, condition):
    mine, other = max(mine, rest), min(mine, rest)
    other = min(other, 1000 - mine)
    ablation = setting(condition=condition)
    found = ablation.decide([10, 0, 0], [mine, other, 1000 - mine - other])
    part = Fraction(ablation.alpha) / (1 if condition == "half" else 3)
    low = Fraction(lower_bound(mine, 1000, float(part)))
    rival = max(other, 1000 - mine - other)
    bounds = [1 - low]
    if condition == "gap":
        bounds.append(Fraction(upper_bound(rival, 1000, float(part))))
    held = [
        r
        for r in range(60)
        if low - delta(1024, 34, r) > Fraction(1, 2) or low - min(bounds) > 2 * delta(1024, 34, r)
    ]
    if not held:
        assert (found.label, found.radius) == (None, 0)
    else:
        assert (found.label, found.radius) == (0, max(held))


def test_the_class_is_chosen_on_the_first_samples_only():
    found = setting().decide([3, 7], [900, 100])
    assert found.label is None  # class 1 was chosen, and is not certain
    assert setting().decide([5, 5], [900, 100]).label == 0  # ties go to the smaller label
    assert setting().decide([5, 5], [100, 900]).label is None


def test_a_gap_of_nothing_abstains(monkeypatch):
    monkeypatch.setattr("robust0.certificates.ablation.lower_bound", lambda *_: 0.5)
    found = setting().decide([10, 0], [600, 400])
    assert (found.label, found.radius) == (None, 0)


def test_the_gap_certifies_what_has_no_majority():
    counts = [450, 50, 60, 70, 90, 90, 90, 100]
    chosen = [10] + [0] * 7
    assert setting().decide(chosen, counts).label is None
    found = setting(condition="gap").decide(chosen, counts)
    assert found.label == 0
    assert found.radius > 0


def test_false_certificates_are_as_rare_as_alpha_says():
    """The worst case for each: an answer that is exactly as likely as certifies nothing."""
    draw = torch.Generator().manual_seed(3)
    for condition, shares in (("half", [0.5, 0.5]), ("gap", [0.4, 0.4, 0.2])):
        ablation = setting(bound=60, alpha=0.2, condition=condition)
        drawn = torch.multinomial(torch.tensor(shares), 60 * 2000, replacement=True, generator=draw)
        counts = torch.nn.functional.one_hot(drawn.reshape(2000, 60)).sum(dim=1).tolist()
        chosen = [10] + [0] * (len(shares) - 1)
        false = sum(ablation.decide(chosen, row).label is not None for row in counts)
        assert false / 2000 < 0.2 + 3 * (0.16 / 2000) ** 0.5


def test_expected_false_certificates_count_the_images_tried():
    assert setting(alpha=0.001).expected_false(10000) == pytest.approx(10)


def test_masks_depend_on_image_and_sample_alone():
    ablation = Ablation(pixels=30, keep=4, seed=9)
    ids = torch.arange(40) % 8
    samples = torch.arange(40) // 8
    together = ablation.visible(ids, samples)
    assert (together.sum(dim=1) == 4).all()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    assert torch.equal(ablation.visible(ids[order], samples[order]), together[order])
    for row in (0, 13, 39):
        alone = ablation.visible(ids[row : row + 1], samples[row : row + 1])
        assert torch.equal(alone[0], together[row])
    assert len(together.unique(dim=0)) == 40
    assert not torch.equal(Ablation(pixels=30, keep=4, seed=8).visible(ids, samples), together)


def test_every_subset_is_drawn_about_as_often():
    ablation = Ablation(pixels=5, keep=2)
    draws = 20000
    shown = ablation.visible(torch.zeros(draws, dtype=torch.int64), torch.arange(draws))
    codes = (shown * 2 ** torch.arange(5)).sum(dim=1)
    counts = codes.unique(return_counts=True)[1].double()
    assert len(counts) == 10
    assert float(((counts - draws / 10) ** 2 / (draws / 10)).sum()) < 27.9  # 0.1 % of chi-square(9)


@pytest.mark.parametrize("changes", [{"keep": 0}, {"keep": 2000}, {"bound": 0}, {"alpha": 1.0}])
def test_what_makes_no_sense_is_refused(changes):
    with pytest.raises(RecipeError):
        setting(**changes)


def test_counts_must_be_complete():
    with pytest.raises(EvaluationError):
        setting().decide([10, 0], [999, 0])
    with pytest.raises(EvaluationError):
        setting().decide([9, 0], [1000, 0])
