import pytest
import torch

from robust0.attacks.base import Reply, Rows
from robust0.attacks.corner_search import CornerSearch, ranked
from robust0.losses import margin
from robust0.rng import Stream
from robust0.threats import Threat

STREAM = Stream.of("corner-search test")


def rows_of(images, labels, threat, classes):
    return Rows(images, labels, torch.arange(len(images)), threat, STREAM, classes)


def painted(image, threat, pair):
    """The image with one (site, corner) pair applied, by plain indexing."""
    groups, _ = threat.shape(image[None])
    site, corner = pair >> groups, pair & ((1 << groups) - 1)
    view = threat.view(image[None]).clone()
    for channel in range(groups):
        view[0, channel, site] = (corner >> channel) & 1
    return view.reshape(image.shape)


@pytest.mark.parametrize(
    ("threat", "shape"),
    [
        (Threat.of(2), (3, 4, 3)),
        (Threat.of(2, "feature"), (3, 4, 3)),
        (Threat.of(2), (1, 3, 5)),
    ],
    ids=["pixels", "features", "grey"],
)
def test_the_full_table_ranks_every_single_change(threat, shape):
    """On a linear network with more classes than usual, against the closed form."""
    classes = 13
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(3, *shape, generator=generator)
    weight = torch.randn(images[0].numel(), classes, generator=generator)
    labels = (images.flatten(1) @ weight).argmax(dim=1)
    attack = CornerSearch(forwards=None, iterations=5, top=20)
    state = attack.start(rows_of(images, labels, threat, classes))
    groups, sites = threat.shape(images)
    for pair in range(sites << groups):
        asked = attack.ask(state)
        assert torch.equal(asked, torch.stack([painted(x, threat, pair) for x in images]))
        attack.tell(state, Reply(asked.flatten(1) @ weight))
    for row, label in enumerate(labels.tolist()):
        every = [painted(images[row], threat, pair) for pair in range(sites << groups)]
        logits = torch.stack(every).flatten(1) @ weight
        leads = logits[:, label, None] - logits
        leads[:, label] = margin(logits, torch.full((len(logits),), label))
        for other in range(classes):
            best = leads[:, other].sort(stable=True)
            pairs = state.rankings[row, other] & 0xFFFFFFFF
            assert torch.allclose(leads[pairs, other], best.values[:20], atol=1e-5)
            assert len(set(pairs.tolist())) == 20


def test_entries_sort_like_their_leads():
    leads = torch.tensor([3.5, -2.0, 0.0, -0.25, 1e-30, -torch.inf, 100.0])
    entries = ranked(leads, torch.arange(7))
    assert (entries.sort().values & 0xFFFFFFFF).tolist() == leads.argsort().tolist()
    ties = ranked(torch.ones(3), torch.tensor([9, 2, 5]))
    assert (ties.sort().values & 0xFFFFFFFF).tolist() == [2, 5, 9]


def searching_state(attack, count, threat, classes=3, shape=(1, 4, 8)):
    """A state whose table is done; each ranking of a row lists the pairs 0, 1, 2, ... in order."""
    images = torch.full((count, *shape), 0.5)
    state = attack.start(rows_of(images, torch.ones(count, dtype=torch.int64), threat, classes))
    order = torch.arange(state.plan.top)
    state.rankings[:] = ranked(order.float(), order)
    state.step += state.plan.table
    return state


def test_ranks_follow_the_linear_law():
    attack = CornerSearch(forwards=None, iterations=100, top=10)
    state = searching_state(attack, 3000, Threat.of(4))
    picks = attack._draw(state, torch.zeros_like(state.labels))
    rank = torch.arange(10)
    law = (2 * (10 - rank) - 1) / 100
    assert float(law.sum()) == pytest.approx(1)
    for column in picks.T:
        expected = 3000 * law
        statistic = ((column.bincount(minlength=10) - expected) ** 2 / expected).sum()
        assert float(statistic) < 27.9  # 0.1 % level, 9 degrees


def test_combinations_paint_the_drawn_pairs_and_a_repeated_site_once():
    attack, threat = CornerSearch(forwards=None, iterations=100, top=10), Threat.of(6)
    state = searching_state(attack, 200, threat)
    picks = attack._draw(state, torch.zeros_like(state.labels))
    asked = attack.ask(state)
    for row in range(200):
        expected = torch.full((1, 4, 8), 0.5)
        for pair in reversed(picks[row].tolist()):  # column 0 counts as the last draw
            expected = painted(expected, threat, pair)
        assert torch.equal(asked[row], expected)
    assert int(threat.distance(state.image(state.clean), asked).max()) <= 6


@pytest.mark.parametrize("mode", ["fixed", "sweep"])
def test_the_full_search_goes_through_sizes_and_rankings(mode):
    attack = CornerSearch(forwards=None, iterations=4, top=64, mode=mode)
    threat = Threat.of(5)
    rounds = [5] if mode == "fixed" else [2, 3, 4, 5]
    state = searching_state(attack, 1, threat)
    assert attack.passes(threat, (1, 4, 8), 3) == 64 + len(rounds) * 3 * 4
    assert attack.notes == ()
    for size in rounds:
        for ranking in range(3):
            for query in range(4):
                turn, sites = attack._turn(state)
                assert (int(turn), int(sites)) == (ranking, size)
                count = int(threat.distance(state.image(state.clean), attack.ask(state)))
                assert count <= size
                done = attack.tell(state, Reply(torch.zeros(1, 3)))
                assert bool(done) == (size == 5 and ranking == 2 and query == 3)


@pytest.mark.parametrize("mode", ["fixed", "sweep"])
def test_with_one_site_the_table_is_all(mode):
    attack = CornerSearch(forwards=None, mode=mode)
    assert attack.passes(Threat.of(1), (3, 5, 4), 10) == 8 * 20


def test_a_budget_of_forwards_halves_into_table_and_search():
    attack, threat = CornerSearch(forwards=60), Threat.of(4)
    assert attack.notes == ("subsampled",)
    assert attack.passes(threat, (3, 6, 5), 4) == 60
    images = torch.rand(5, 3, 6, 5)
    state = attack.start(rows_of(images, torch.arange(5) % 4, threat, 4))
    assert state.plan.table == 30
    chosen = state.chosen.clone()
    assert all(len(set(row)) == 30 for row in chosen.tolist())
    assert len({tuple(row) for row in chosen.tolist()}) == 5
    assert int(chosen.max()) < 240
    for query in range(30):
        expected = [
            painted(x, threat, int(p)) for x, p in zip(images, chosen[:, query], strict=True)
        ]
        assert torch.equal(attack.ask(state), torch.stack(expected))
        attack.tell(state, Reply(torch.rand(5, 4)))
    kept = state.rankings & 0xFFFFFFFF
    assert all(
        set(k.flatten().tolist()) == set(c) for k, c in zip(kept, chosen.tolist(), strict=True)
    )
    first, size = attack._turn(state)
    assert torch.equal(first, state.labels)  # the untargeted ranking comes first
    assert size.tolist() == [4] * 5
    rankings = state.rankings.clone()
    for query in range(30):
        done = attack.tell(state, Reply(torch.rand(5, 4) - 1))
        assert bool(done.all()) == (query == 29)
    assert torch.equal(state.rankings, rankings)


def test_with_one_site_all_forwards_go_into_the_table():
    attack, threat = CornerSearch(forwards=60), Threat.of(1)
    assert attack.passes(threat, (3, 6, 5), 4) == 60
    state = attack.start(rows_of(torch.rand(2, 3, 6, 5), torch.zeros(2).long(), threat, 4))
    assert (state.plan.table, state.plan.search) == (60, 0)
    assert CornerSearch(forwards=500).passes(threat, (3, 6, 5), 4) == 240  # all there are


def test_a_budget_beyond_the_table_completes_it():
    attack = CornerSearch(forwards=100)
    state = attack.start(rows_of(torch.rand(2, 1, 2, 4), torch.zeros(2).long(), Threat.of(2), 3))
    assert (state.plan.table, state.plan.search, state.plan.top) == (16, 84, 16)
    assert all(sorted(row) == list(range(16)) for row in state.chosen.tolist())


def test_memory_does_not_grow_with_the_table():
    """The table of a large image is streamed: a row holds the tops of its rankings only."""
    sizes = []
    for side in (8, 64):
        rows = rows_of(torch.rand(1, 3, side, side), torch.zeros(1).long(), Threat.of(2), 5)
        state = CornerSearch(forwards=None).start(rows)
        sizes.append(state.bytes_per_row() - state.clean[0].numel() * 4)
    assert sizes[0] == sizes[1] < 10_000


def test_a_budget_of_its_own_is_recorded_as_what_it_does():
    assert CornerSearch(forwards=None, mode="sweep").mode == "sweep"
    assert CornerSearch(forwards=9, mode="sweep").mode == "fixed"
