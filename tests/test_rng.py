import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.attacks import moves
from robust0.rng import Stream, derive, philox, seeded

# Known answers of Random123 (kat_vectors, philox4x32 with 10 rounds): counter, key, output.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]

STREAM = Stream.of("test", 1)
IDS = torch.arange(200)
STEPS = torch.zeros_like(IDS)


def chi_square(observed: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((observed - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_philox_gives_the_published_answers(counter, key, answer):
    words = philox(tuple(torch.tensor([word]) for word in counter), key)
    assert tuple(int(word) for word in words) == answer


def test_words_are_philox_blocks_of_id_step_and_lane():
    ids, steps = torch.tensor([(0x1234 << 32) | 0x89ABCDEF]), torch.tensor([7])
    words = Stream((3, 4)).words(ids, steps, 6, lane=2)[0].tolist()
    blocks = [
        philox(tuple(torch.tensor([w]) for w in (b, (0x1234 << 16) | 2, 7, 0x89ABCDEF)), (3, 4))
        for b in range(2)
    ]
    assert words == [int(word) for block in blocks for word in block][:6]


@given(
    st.lists(st.integers(0, 2**48 - 1), min_size=1, max_size=8, unique=True),
    st.integers(0, 2**32 - 1),
    st.integers(1, 20),
    st.integers(0, 2**16 - 1),
)
@settings(max_examples=40, deadline=None)
def test_a_draw_is_a_function_of_its_address_alone(ids, step, count, lane):
    rows = torch.tensor(ids)
    steps = torch.full_like(rows, step)
    together = STREAM.words(rows, steps, count, lane)
    assert torch.equal(together.flip(0), STREAM.words(rows.flip(0), steps, count, lane))
    assert torch.equal(together[:1], STREAM.words(rows[:1], steps[:1], count, lane))
    assert torch.equal(together, STREAM.words(rows, steps, count + 5, lane)[:, :count])
    assert int(together.min()) >= 0
    assert int(together.max()) < 2**32


@pytest.mark.parametrize(
    "other",
    [
        STREAM.words(IDS + 1000, STEPS, 8),
        STREAM.words(IDS + (1 << 32), STEPS, 8),
        STREAM.words(IDS, STEPS + 1, 8),
        STREAM.words(IDS, STEPS, 8, lane=1),
        Stream.of("test", 2).words(IDS, STEPS, 8),
    ],
)
def test_another_id_step_lane_or_stream_is_another_draw(other):
    assert (STREAM.words(IDS, STEPS, 8) == other).float().mean() < 0.01


def test_keys_tell_parts_apart():
    keys = {derive(0, "a", "bc"), derive(0, "ab", "c"), derive(0, "abc"), derive(1, "a", "bc")}
    assert len(keys) == 4
    assert derive("attack", 0, "x") == derive("attack", 0, "x")


def test_keys_never_change():
    """Every recorded verdict rests on them."""
    assert derive("attack", 0, "sparse-rs", "20 pixels") == (2083787557, 3546474873)


def test_uniform_fills_the_unit_interval():
    draws = STREAM.uniform(IDS, STEPS, 500)
    assert draws.dtype == torch.float32
    assert float(draws.min()) >= 0
    assert float(draws.max()) < 1
    counts = torch.histc(draws, 20, 0, 1)
    assert chi_square(counts, torch.full((20,), 5000.0)) < 43.8  # 0.1 % level, 19 degrees


def test_integers_are_uniform():
    draws = STREAM.integers(IDS, STEPS, 500, 7)
    counts = draws.flatten().bincount(minlength=7).float()
    assert len(counts) == 7
    assert chi_square(counts, torch.full((7,), 100_000 / 7)) < 22.5  # 0.1 % level, 6 degrees


def test_normals_and_gumbels_have_their_moments():
    normal = STREAM.normal(IDS, STEPS, 501).double()
    assert abs(float(normal.mean())) < 0.02
    assert abs(float(normal.var()) - 1) < 0.03
    assert abs(float((normal.abs() < 1).double().mean()) - 0.6827) < 0.006
    gumbel = moves.gumbel(STREAM.words(IDS, STEPS, 500)).double()
    assert abs(float(gumbel.mean()) - 0.5772) < 0.02
    assert abs(float(gumbel.var()) - 1.6449) < 0.06
    assert bool(torch.isfinite(gumbel).all())


def test_subsets_are_distinct_and_uniform():
    ids = torch.arange(2000)
    chosen = STREAM.subset(ids, torch.zeros_like(ids), 3, 10)
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    for column in range(3):
        counts = chosen[:, column].bincount(minlength=10).float()
        assert chi_square(counts, torch.full((10,), 200.0)) < 27.9  # 0.1 % level, 9 degrees


def test_a_permutation_has_every_position_once():
    order = STREAM.permutation(100, step=3)
    assert order.sort().values.tolist() == list(range(100))
    assert not torch.equal(order, STREAM.permutation(100, step=4))


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    STREAM.normal(IDS, STEPS, 10)
    with seeded("weights", 0):
        first = torch.rand(3)
    with seeded("weights", 0):
        assert torch.equal(first, torch.rand(3))
    with seeded("weights", 1):
        assert not torch.equal(first, torch.rand(3))
    assert torch.equal(before, torch.get_rng_state())
