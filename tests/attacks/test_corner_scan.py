"""One or two sites: guided-swap tries every corner once, the most promising first."""

from dataclasses import replace
from itertools import combinations, product

import pytest
import torch

from robust0.attacks.base import Reply
from robust0.attacks.corner_scan import CornerScan
from robust0.attacks.guided_swap import GuidedSwap
from robust0.attacks.sparse_rs import paint
from robust0.losses import margin
from robust0.models.fast.oracle import frozen
from robust0.threats import Threat


def every_change(shape, k):
    """(N, k) all pairs of a site and a corner, at k different sites."""
    groups, height, width = shape
    sites = combinations(range(height * width), k)
    corners = list(product(range(1 << groups), repeat=k))
    return torch.tensor(
        [
            [s << groups | c for s, c in zip(chosen, by, strict=True)]
            for chosen in sites
            for by in corners
        ]
    )


def lowest_margins(problem, threat):
    """(B,) what trying every change leaves."""
    changes = every_change(problem.images.shape[1:], int(threat.budget))
    lowest = []
    for image, label in zip(problem.images, problem.labels, strict=True):
        clean = threat.view(image[None]).expand(len(changes), -1, -1)
        images = threat.image(paint(clean, changes), tuple(image.shape))
        with frozen(problem.model), torch.no_grad():
            gaps = margin(problem.model(images), label.expand(len(changes)))
        lowest.append(float(gaps.min()))
    return torch.tensor(lowest), len(changes)


def asked_images(attack, problem, threat, play):
    """Of each row, the images it tried until it was done."""
    state = attack.start(problem.rows(threat))
    assert isinstance(state, CornerScan)
    tried = [[] for _ in problem.images]
    going = torch.ones(len(tried), dtype=torch.bool)
    while going.any():
        looks = attack.wants_gradient(state)
        images = play(attack, state, problem.model)
        for row in (going & ~looks).nonzero()[:, 0].tolist():
            tried[row].append(images[row].numpy().tobytes())
        going &= ~state.exhausted & (state.spent + 1 + state.looking <= attack.forwards)
    return tried, state


@pytest.mark.parametrize(
    ("k", "shape"), [(1, (3, 6, 5)), (1, (1, 5, 4)), (2, (1, 3, 4)), (2, (3, 2, 2))]
)
def test_it_finds_what_trying_everything_finds(k, shape, small, drive):
    problem, threat = small(count=24, shape=shape), Threat.of(k)
    lowest, number = lowest_margins(problem, threat)
    if shape[0] == 3:
        assert 3 < int((lowest < 0).sum()) < 24
    # At two sites looks at new incumbents come on top of one trial per image.
    outcomes = drive(GuidedSwap(forwards=number + (2 if k == 1 else 120)), problem, threat)
    assert [outcome.fooled for outcome in outcomes] == (lowest < 0).tolist()
    left = torch.tensor([outcome.margin for outcome in outcomes])
    standing = lowest > 0
    torch.testing.assert_close(left[standing], lowest[standing], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("k", "shape"), [(1, (3, 4, 3)), (2, (1, 3, 3)), (2, (3, 2, 2))])
def test_it_tries_every_image_once_and_then_ends(k, shape, small, play):
    problem, threat = small(count=5, shape=shape), Threat.of(k)
    number = len(every_change(shape, k))
    tried, state = asked_images(GuidedSwap(forwards=20 * number), problem, threat, play)
    assert state.exhausted.all()
    assert [len(images) for images in tried] == [number] * 5
    assert [len(set(images)) for images in tried] == [number] * 5


def test_where_the_margin_is_linear_the_first_trial_is_the_best(linear, play):
    threat, attack = Threat.of(1), GuidedSwap(forwards=50)
    problem = linear(10, Threat.of(10), count=3)
    state = attack.start(problem.rows(threat))
    for _ in range(2):
        play(attack, state, problem.model)
    torch.testing.assert_close(state.margin, lowest_margins(problem, threat)[0])


def test_corners_that_a_site_has_already_are_not_tried(small, play):
    problem, threat = small(count=3, shape=(1, 4, 4)), Threat.of(1)
    problem = replace(problem, images=problem.images.round())
    tried, _ = asked_images(GuidedSwap(forwards=100), problem, threat, play)
    for images, clean in zip(tried, problem.images, strict=True):
        assert len(set(images)) == len(images) == 16
        assert clean.numpy().tobytes() not in images


def test_a_site_that_gained_more_than_it_should_is_tried_again(small, play):
    """What a trial found moves the other corners of its site, and no other site's."""
    problem, threat, attack = small(count=4), Threat.of(1), GuidedSwap(forwards=50)
    state = attack.start(problem.rows(threat))
    play(attack, state, problem.model)
    sites = state.pair >> 3
    play(attack, state, problem.model)
    moved = state.surprise != 0
    assert torch.equal(moved.sum(dim=1), torch.ones(4, dtype=torch.int64))
    assert torch.equal(moved.to(torch.int64).argmax(dim=1), sites)


def test_sites_of_too_many_values_are_swapped_as_ever(small):
    problem = small(count=2, shape=(3, 14, 3))
    assert not isinstance(GuidedSwap().start(problem.rows(Threat.of(1, "column"))), CornerScan)
    assert not isinstance(GuidedSwap().start(problem.rows(Threat.of(3))), CornerScan)


def test_an_answer_of_nan_teaches_nothing(small, play):
    problem, threat, attack = small(count=3), Threat.of(2), GuidedSwap(forwards=40)

    state = attack.start(problem.rows(threat))
    play(attack, state, problem.model)
    attack.tell(state, Reply(torch.full((3, 4), torch.nan), torch.zeros_like(state.clean)))
    for _ in range(5):
        attack.tell(state, Reply(torch.full((3, 4), torch.nan)))
    assert state.surprise.isfinite().all()
    assert state.without.isfinite().all()
    assert state.fit.isfinite().all()
    assert not state.exhausted.any()
