import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.attacks.base import Reply, Rows
from robust0.attacks.sparse_rs import SparseRS, distinct, swap_sizes, words_needed
from robust0.losses import cross_entropy, margin
from robust0.rng import Stream
from robust0.threats import Threat

STREAM = Stream.of("sparse-rs test")


def rows_of(images, threat, ids=None):
    ids = torch.arange(len(images)) if ids is None else ids
    return Rows(images, torch.zeros_like(ids), ids, threat, STREAM, 3)


def sites_of(state):
    return state.pairs >> state.clean.shape[1]


def distinct_runs(values):
    return [v for i, v in enumerate(values) if i == 0 or v != values[i - 1]]


@pytest.mark.parametrize(
    ("budget", "p_init", "expected"),
    [
        (20, 0.8, [8, 4, 3, 2, 2, 1, 1, 1, 1]),
        (12, 0.8, [4, 2, 1, 1, 1, 1, 1, 1, 1]),
        (10, 0.8, [4, 2, 1, 1, 1, 1, 1, 1, 1]),
        (200, 0.3, [30, 15, 12, 10, 7, 6, 5, 4, 3]),
        (12, 0.3, [1] * 9),
    ],
)
def test_the_published_swap_sizes(budget, p_init, expected):
    sizes = swap_sizes(10_000, p_init, budget, 1000)
    ends = [50, 200, 500, 1000, 2000, 4000, 6000, 8000, 10_000]
    assert [sizes[end] for end in ends] == expected
    assert [sizes[end + 1] for end in ends[:-1]] == expected[1:]
    assert sizes[1] == expected[0]


def test_the_schedule_stretches_to_the_budget():
    long, short = swap_sizes(10_000, 0.8, 20, 1000), swap_sizes(1000, 0.8, 20, 1000)
    assert distinct_runs(short[1:]) == distinct_runs(long[1:]) == [8, 4, 3, 2, 1]
    assert all(short[i] == long[10 * i] for i in range(1001))
    assert swap_sizes(20_000, 0.8, 20, 1000)[1] == 16  # the factor 1 of the very beginning


def test_no_more_are_swapped_than_are_free():
    assert max(swap_sizes(100, 0.8, 20, 3)) == 3
    assert swap_sizes(1000, 0.8, 20, 0)[1] == 8


@given(st.integers(1, 40), st.integers(1, 1000), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_distinct_positions(size, extra, first):
    of = size + extra
    ids = torch.arange(first, first + 5)
    words = STREAM.words(ids, torch.zeros_like(ids), words_needed(size, of))
    chosen = distinct(words, size, of)
    assert chosen.shape == (5, size)
    assert all(len(set(row)) == size for row in chosen.tolist())
    assert int(chosen.min()) >= 0
    assert int(chosen.max()) < of


@pytest.mark.parametrize("size", [1, 2, 3])
def test_distinct_positions_are_uniform_by_both_methods(size):
    ids = torch.arange(6000)
    for of in (12, 60):
        words = STREAM.words(ids, torch.zeros_like(ids), words_needed(size, of))
        for column in distinct(words, size, of).T:
            expected = 6000 / of
            statistic = ((column.bincount(minlength=of) - expected) ** 2 / expected).sum()
            assert float(statistic) < (31.3 if of == 12 else 98.4)  # 0.1 % level


@given(
    st.sampled_from([1, 3]),
    st.integers(1, 24),
    st.booleans(),
    st.sampled_from(["ce", "margin"]),
    st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_the_search_keeps_its_invariants(channels, budget, pixelwise, loss, seed):
    generator = torch.Generator().manual_seed(seed)
    images = (torch.rand(4, channels, 4, 6, generator=generator) * 4).round() / 4
    threat = Threat.of(budget, "pixel" if pixelwise else "feature")
    weight = torch.randn(channels * 24, 3, generator=generator)
    attack = SparseRS(queries=30, loss=loss)
    state = attack.start(rows_of(images, threat))
    for query in range(30):
        before, asked, trial = state.lowest.clone(), attack.ask(state), state.trial.clone()
        assert int(threat.distance(images, asked).max()) <= budget
        view = threat.view(asked)
        changed = threat.changed(images, asked)[:, None].expand_as(view)
        assert set(view[changed].tolist()) <= {0.0, 1.0}
        logits = asked.flatten(1) @ weight
        value = margin(logits, state.labels)
        fooled = value < 0
        if loss == "ce":
            value = -cross_entropy(logits, state.labels)
        done = attack.tell(state, Reply(logits))
        assert all(len(set(row)) == budget for row in sites_of(state).tolist())
        assert torch.equal(state.lowest, torch.minimum(before, value))
        kept = (value < before) | fooled
        assert torch.equal(state.pairs[kept], trial[kept])
        assert bool(done.all()) == (query == 29)


def test_each_query_swaps_as_many_sites_as_the_schedule_says():
    images, threat = torch.rand(6, 3, 16, 16), Threat.of(20)
    attack = SparseRS(queries=100)
    state = attack.start(rows_of(images, threat))
    sizes = swap_sizes(100, 0.8, 20, 236)
    for query in range(1, 100):
        attack.tell(state, Reply(torch.rand(6, 3)))
        used, tried = sites_of(state), state.trial >> 3
        for before, after in zip(used.tolist(), tried.tolist(), strict=True):
            assert len(set(after)) == 20
            assert len(set(before) - set(after)) == sizes[query]
        assert torch.equal(state.pairs[used == tried], state.trial[used == tried])


def test_new_sites_and_colours_are_uniform():
    ids = torch.arange(4000)
    images = torch.full((4000, 3, 2, 4), 0.5)
    attack = SparseRS(queries=10, p_init=0.01)
    state = attack.start(rows_of(images, Threat.of(3), ids))
    attack.tell(state, Reply(torch.ones(4000, 3)))
    moved = state.pairs >> 3 != state.trial >> 3
    assert moved.sum(dim=1).eq(1).all()
    left = moved.float().argmax(dim=1).bincount(minlength=3)
    assert float(((left - 4000 / 3) ** 2 / (4000 / 3)).sum()) < 13.8  # 0.1 % level, 2 degrees
    arrived = (state.trial >> 3)[moved].bincount(minlength=8)
    assert float(((arrived - 500.0) ** 2 / 500).sum()) < 24.3  # 7 degrees
    corners = (state.trial & 7)[moved].bincount(minlength=8)
    assert float(((corners - 500.0) ** 2 / 500).sum()) < 24.3


def test_a_single_swap_never_repaints_what_is_there():
    """On an image of corner colours an eighth of the draws would change nothing."""
    images = torch.ones(2000, 3, 2, 4)
    state = SparseRS(queries=10, p_init=0.01).start(rows_of(images, Threat.of(3)))
    SparseRS(queries=10, p_init=0.01).tell(state, Reply(torch.ones(2000, 3)))
    corners = (state.trial & 7)[state.pairs >> 3 != state.trial >> 3]
    counts = corners.bincount(minlength=8)
    assert (len(corners), int(counts[7])) == (2000, 0)
    # The white eighth is shared out among the corners that differ from it in one channel.
    expected = 250 + 250 / 3 * torch.tensor([0, 0, 0, 1, 0, 1, 1])
    assert float(((counts[:7] - expected) ** 2 / expected).sum()) < 22.5  # 6 degrees


@pytest.mark.parametrize("threat", [Threat.of(6), Threat.of(18, "feature")], ids=str)
def test_where_all_sites_are_used_they_are_recoloured(threat):
    images = torch.rand(8, 3, 2, 3)
    attack = SparseRS(queries=40, p_init=0.01)
    state = attack.start(rows_of(images, threat))
    for _ in range(39):
        attack.tell(state, Reply(torch.rand(8, 3)))
        assert torch.equal(sites_of(state), state.trial >> state.clean.shape[1])
        assert (state.pairs != state.trial).sum(dim=1).tolist() == [1] * 8


def test_settings_that_need_no_gradient(small, drive):
    attack = SparseRS(queries=7)
    assert attack.black_box
    outcomes = drive(attack, small(count=3), Threat.of(1))
    assert {outcome.backwards for outcome in outcomes} == {0}
    assert attack.passes(Threat.of(1), (3, 6, 5), 4) == 7


def test_a_tie_is_not_an_improvement():
    attack = SparseRS(queries=10)
    state = attack.start(rows_of(torch.rand(5, 3, 4, 6), Threat.of(3)))
    level = Reply(torch.tensor([[2.0, 0.0, 1.0]]).expand(5, -1))
    attack.tell(state, level)
    pairs = state.pairs.clone()
    attack.tell(state, level)
    assert torch.equal(state.pairs, pairs)
    assert not torch.equal(state.pairs, state.trial)
