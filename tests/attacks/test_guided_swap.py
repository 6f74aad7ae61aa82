"""Guided swap: what it asks about, what it makes of a gradient, and what it finds."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from robust0.attacks.base import Reply
from robust0.attacks.guided_swap import GuidedSwap
from robust0.attacks.moves import blind_share, fresh_record, ranks, recorded
from robust0.losses import margin
from robust0.models.fast.oracle import frozen
from robust0.threats import Threat


def advance(attack, state, model):
    """One query of every row, all rows going on; (images, margins, which were looks, spent)."""
    images, looks = attack.ask(state), attack.wants_gradient(state)
    margins = torch.full((len(images),), math.nan)
    done = torch.zeros(len(images), dtype=torch.bool)
    for steep in (True, False):
        rows = (looks == steep).nonzero()[:, 0]
        if not len(rows):
            continue
        part = state.take(rows)
        with frozen(model):
            query = images[rows].requires_grad_(steep)
            logits = model(query)
            slope = None
            if steep:
                (slope,) = torch.autograd.grad(attack.objective(part, logits).sum(), query)
                slope = state.threat.view(slope)
        margins[rows] = margin(logits.detach(), part.labels)
        done[rows] = attack.tell(part, Reply(logits.detach(), slope))
        state.put(rows, part)
    return images.detach(), margins, looks, done


def until_looked(attack, problem, threat):
    """The state after the look at the clean image and the look at the first incumbent."""
    state = attack.start(problem.rows(threat))
    for _ in range(2):
        assert attack.wants_gradient(state).all()
        advance(attack, state, problem.model)
    return state


def painted(state):
    """The incumbents as images."""
    sites = state.sites[:, None].expand_as(state.colours)
    return state.image(state.clean.scatter(2, sites, state.colours))


def lead(problem, images):
    with frozen(problem.model), torch.no_grad():
        return margin(problem.model(images), problem.labels)


@settings(max_examples=25, deadline=None)
@given(
    channels=st.sampled_from([1, 3]),
    unit=st.sampled_from(["pixel", "feature"]),
    budget=st.integers(3, 20),
    forwards=st.integers(4, 60),
    explore=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 1000),
)
def test_a_row_keeps_its_budgets_and_its_best(
    small, channels, unit, budget, forwards, explore, seed
):
    problem = small(count=4, shape=(channels, 5, 4), seed=seed % 3)
    threat, attack = Threat.of(budget, unit), GuidedSwap(forwards=forwards, explore=explore)
    state = attack.start(problem.rows(threat, seed=seed))
    spent, finished = torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.bool)
    for _ in range(forwards):
        before = state.margin.clone()
        images, margins, looks, done = advance(attack, state, problem.model)
        spent += ~finished * (1 + looks.long())
        finished |= done
        changed = images != problem.images
        assert (threat.distance(problem.images, images) <= budget).all()
        assert ((images == 0) | (images == 1) | ~changed).all()
        assert all(len(set(row)) == budget for row in state.sites.tolist())
        assert (state.margin <= before).all()
        assert (looks | (state.margin == torch.minimum(before, margins))).all()
        if finished.all():
            break
    assert finished.all()
    assert ((spent == forwards) | (spent == forwards - 1)).all()


@pytest.mark.parametrize("threat", [Threat.of(5), Threat.of(9, "feature")], ids=str)
def test_gains_are_exact_where_the_margin_is_linear(linear, threat):
    problem = linear(12, threat, count=3)
    state = until_looked(GuidedSwap(), problem, threat)
    base = lead(problem, painted(state))
    torch.testing.assert_close(state.margin, base)
    flat = threat.view(painted(state))
    for column in range(3):
        site = state.free_sites[:, column, None, None].expand(-1, flat.shape[1], 1)
        there = flat.scatter(2, site, state.free_colours[:, :, column : column + 1])
        fall = base - lead(problem, state.image(there))
        torch.testing.assert_close(state.free_gain[:, column], fall, atol=1e-4, rtol=1e-4)
        used = state.sites[:, column, None, None].expand(-1, flat.shape[1], 1)
        back = flat.scatter(2, used, state.clean.gather(2, used))
        fall = base - lead(problem, state.image(back))
        torch.testing.assert_close(state.return_gain[:, column], fall, atol=1e-4, rtol=1e-4)
    assert (state.recolour_gain.abs() < 1e-6).all()  # a linear margin's greedy start has the best


def test_shortlist_holds_the_best_free_sites(linear, gains):
    threat = Threat.of(5)
    problem = linear(12, threat, count=4)
    state = until_looked(GuidedSwap(), problem, threat)
    order = gains(problem.model.weight.detach(), problem.images, threat).sort(descending=True)
    assert state.sites.tolist() == order.indices[:, :5].tolist()
    assert state.free_sites.tolist() == order.indices[:, 5:].tolist()
    torch.testing.assert_close(state.spread[:, 0], order.values[:, 5:].std(1, correction=0))


def test_a_cold_search_makes_the_best_exchange(small):
    threat = Threat.of(4)
    problem = small(count=6, shape=(3, 8, 8))
    state = until_looked(GuidedSwap(temperature=1e-6, explore=0, recolour=0), problem, threat)
    assert torch.equal(state.move_slots[:, 0], state.return_gain.argmax(dim=1))
    assert torch.equal(state.move_sites[:, 0], state.free_sites[:, 0])
    assert torch.equal(state.move_colours[:, :, 0], state.free_colours[:, :, 0])


@pytest.mark.parametrize("unit", ["pixel", "feature"])
def test_a_linear_network_falls_at_its_optimum_at_once(unit, linear, drive):
    problem = linear(10, Threat.of(10, unit))
    outcomes = drive(GuidedSwap(forwards=4), problem, Threat.of(10, unit))
    assert all(outcome.fooled for outcome in outcomes)
    assert {(outcome.forwards, outcome.backwards) for outcome in outcomes} == {(2, 2)}
    below = drive(GuidedSwap(forwards=300), problem.first(4), Threat.of(9, unit))
    assert not any(outcome.fooled for outcome in below)


def test_with_every_site_used_it_recolours(small):
    problem = small(count=5, shape=(3, 4, 3))
    attack = GuidedSwap(forwards=200)
    state = until_looked(attack, problem, Threat.of(12))
    sites, colours, first = state.sites.clone(), state.colours.clone(), state.margin.clone()
    for _ in range(120):
        advance(attack, state, problem.model)
    assert torch.equal(state.sites, sites)
    assert (state.colours != colours).any()
    assert (state.margin < first).all()


def test_moves_shrink_to_one_site(small):
    problem, threat = small(count=8, shape=(3, 8, 8)), Threat.of(20)
    attack = GuidedSwap(forwards=300, widest=0.5)
    state, sizes = attack.start(problem.rows(threat)), []
    while True:
        current = painted(state)
        images, _, looks, done = advance(attack, state, problem.model)
        if done.any():
            break
        if not looks.any():
            sizes.append(int((threat.distance(current, images)).max()))
    assert max(sizes[:30]) > 8
    # A swap gives back one site and paints another.
    assert max(sizes[-20:]) <= 2


def test_rows_in_different_phases_do_not_touch_each_other(exact):
    problem, threat = exact.first(7), Threat.of(6)
    attack = GuidedSwap(forwards=60)
    rows = problem.rows(threat)
    together = attack.start(rows)
    alone = [together.take(torch.tensor([row])) for row in range(7)]
    phases = set()
    for _ in range(30):
        _, _, looks, _ = advance(attack, together, problem.model)
        phases.add(int(looks.sum()))
        for state in alone:
            advance(attack, state, problem.model)
    assert phases - {0, 7}
    assert torch.equal(together.sites, torch.cat([state.sites for state in alone]))
    assert torch.equal(together.colours, torch.cat([state.colours for state in alone]))


class Deaf(nn.Module):
    """Its gradient says nothing: the mean of a corner of the image against a threshold."""

    def forward(self, images):
        score = images.detach()[:, :, :3, :3].mean(dim=(1, 2, 3)) - 0.45
        score = score + 0 * images.flatten(1).sum(dim=1)
        return torch.stack([score, -score], dim=1)


def test_without_a_gradient_it_searches_at_random(drive, small):
    template = small(count=6, shape=(3, 6, 6))
    images = template.images * 0.2 + 0.5
    problem = type(template)(Deaf(), images, torch.zeros(6, dtype=torch.int64), 2)
    outcomes = drive(GuidedSwap(forwards=400), problem, Threat.of(6))
    assert all(outcome.fooled for outcome in outcomes)


@pytest.mark.parametrize("k", [3, 5])
def test_no_swap_of_one_site_is_tried_twice_at_an_incumbent(k, linear):
    """On a linear model the first choice is the best, so that every swap fails."""
    problem, threat = linear(10, Threat.of(10), count=6), Threat.of(k)
    attack = GuidedSwap(forwards=4000, explore=0, widest=1 / k)
    state = until_looked(attack, problem, threat)
    incumbent, free = painted(state), state.clean.shape[2] - k
    asked = [set() for _ in range(6)]
    swaps = [0] * 6
    for _ in range(2 * k * free):
        images, *_ = advance(attack, state, problem.model)
        assert torch.equal(painted(state), incumbent)
        changed = (images != incumbent).any(dim=1).flatten(1)
        for row in range(6):
            new = set(changed[row].nonzero()[:, 0].tolist()) - set(state.sites[row].tolist())
            if new and swaps[row] < free:
                swaps[row] += 1
                asked[row].add(images[row].numpy().tobytes())
    assert swaps == [free] * 6
    assert [len(images) for images in asked] == swaps


@pytest.mark.parametrize("shape", [(1, 4, 5), (3, 4, 5)])
def test_a_recolouring_changes_a_colour(shape, small):
    problem = small(count=16, shape=shape)
    threat = Threat.of(20)  # all of them: there is nothing else to do
    attack = GuidedSwap(forwards=400)
    state = until_looked(attack, problem, threat)
    for _ in range(60):
        trial, before = ~attack.wants_gradient(state), painted(state)
        images, *_ = advance(attack, state, problem.model)
        assert (images != before).flatten(1).any(dim=1)[trial].all()


def test_large_images_keep_their_state_small(small):
    """At 224x224 a row holds the clean image and one number per site."""
    problem, threat = small(count=2, shape=(3, 224, 224), classes=3), Threat.of(200)
    attack = GuidedSwap(forwards=40)
    state = until_looked(attack, problem, threat)
    advance(attack, state, problem.model)
    image_bytes = state.clean[0].numel() * 4
    assert state.bytes_per_row() < 1.5 * image_bytes
    assert (threat.distance(problem.images, attack.ask(state)) <= 200).all()


@given(free=st.integers(1, 400), size=st.integers(1, 40), data=st.data())
def test_ranks_are_distinct_and_in_range(free, size, data):
    size = min(size, free)
    words = data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=size + 1, max_size=size + 1))
    drawn = ranks(torch.tensor([words]), free)[0].tolist()
    assert len(set(drawn)) == size
    assert all(0 <= rank < free for rank in drawn)


def test_where_every_site_is_used_the_gradient_still_guides(small):
    """At k = all sites moves recolour, and most of them by what the gradient says."""
    problem, threat = small(count=8), Threat.of(30)
    attack = GuidedSwap(forwards=60)
    state = until_looked(attack, problem, threat)
    before = lead(problem, painted(state))
    while not advance(attack, state, problem.model)[3].all():
        pass
    guided = (before - lead(problem, painted(state))).mean()
    blind = attack.start(problem.rows(threat))
    for _ in range(2):
        advance(attack, blind, problem.model)
    while True:
        blind.spread = torch.zeros_like(blind.spread)  # as if the gradient said nothing
        if advance(attack, blind, problem.model)[3].all():
            break
    assert guided > (before - lead(problem, painted(blind))).mean()


def test_chance_is_never_one(small):
    """A word of ones must not make a swap where there is nothing to swap with."""

    class Ones:
        def words(self, ids, steps, count, lane=0):
            return torch.full((len(ids), count), 2**32 - 1)

    problem, threat = small(count=2), Threat.of(30)
    attack = GuidedSwap()
    state = until_looked(attack, problem, threat)
    state.stream = Ones()
    state.looking[:] = False
    attack._propose(state)
    assert torch.equal(state.move_sites, state.sites.gather(1, state.move_slots))


def test_random_sites_are_as_frequent_as_they_are_good():
    """Their share begins at the least one, and follows how far either kind lowers the margin."""
    record = fresh_record(torch.zeros(4, 3, 9))
    assert blind_share(record, 0.1).tolist() == pytest.approx([0.1] * 4)
    rows = torch.arange(4)
    for turn in range(60):
        blind = torch.full((4,), turn % 2 == 0)
        # Row 0: the gradient is right. Row 1: chance is. Row 2: both alike. Row 3: not counted.
        fall = torch.where(blind, torch.tensor([1e-3, 4e-3, 1e-3, 9.0]), torch.tensor(1e-3))
        fall = torch.where((rows == 0) & blind, -fall, fall)
        record = recorded(record, blind, rows < 3, fall)
    assert blind_share(record, 0.1).tolist() == pytest.approx([0.1, 0.9, 0.1, 0.1])
    # What counts is the ratio: the same classifier with other logits gives the same shares.
    scaled = torch.stack([1e6 * record[:, :, 0], record[:, :, 1]], dim=2)
    assert torch.equal(blind_share(scaled, 0.1), blind_share(record, 0.1))
    assert blind_share(record, 0).tolist() == [0, 0, 0, 0]
    assert blind_share(record, 1).tolist() == [1, 1, 1, 1]


class Liar(nn.Module):
    """Logits whose gradient points the wrong way: the step up is steep, the way there falls."""

    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, images):
        """The true score, with the slope of its opposite."""
        score = (images * self.weight).flatten(1).sum(dim=1)
        score = 2 * score.detach() - score
        return torch.stack([score, torch.zeros_like(score)], dim=1)


def test_where_the_gradient_lies_sites_are_drawn_at_random(small):
    """Its greedy start is the worst one there is; chance leads out of it."""
    given = small(count=4, shape=(3, 8, 8))
    weight = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(5))
    problem = replace(given, model=Liar(weight), labels=torch.zeros_like(given.labels))
    attack, threat = GuidedSwap(forwards=400), Threat.of(10)
    state = until_looked(attack, problem, threat)
    first, looks = state.margin.clone(), 0
    for _ in range(300):
        _, _, looked, _ = advance(attack, state, problem.model)
        looks += int(looked.sum())
    assert (blind_share(state.record, attack.explore) > 0.5).all()
    assert (state.margin < first).all()
    assert looks < 100  # of 1,200: a move of random sites needs none
