import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.errors import RecipeError
from robust0.threats import Threat
from robust0.threats.sparse import corners, free_sites, top_mask

IMAGES = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5) / 120


@pytest.mark.parametrize(
    ("budget", "unit"),
    [(0, "pixel"), (0, "patch:4"), (3, "pixels"), (3, "pixel:2"), (3, "patch:0"), (3, "patch:x")],
)
def test_a_threat_needs_a_unit_and_a_positive_budget(budget, unit):
    with pytest.raises(RecipeError) as refused:
        Threat.of(budget, unit)
    assert refused.value.hint


def test_names_and_units():
    assert str(Threat.of(20)) == "20 pixels"
    assert str(Threat.of(1, "feature")) == "1 feature"
    assert str(Threat.of(3, "patch:4")) == "3 4x4 patches"
    assert (Threat.of(60, "feature").unit, Threat.of(60, "feature").budget) == ("feature", 60)
    assert [Threat.of(1, unit).unit for unit in ("row", "column", "patch:2", "patch")] == [
        "row", "column", "patch:2", "patch:4",
    ]  # fmt: skip


SITES = {"pixel": 20, "feature": 60, "row": 4, "column": 5}


@pytest.mark.parametrize("unit", [*SITES, "patch:2"])
def test_a_view_is_the_image_in_another_order(unit):
    images = torch.rand(2, 3, 4, 6) if unit == "patch:2" else IMAGES
    threat = Threat.of(1, unit)
    view = threat.view(images)
    assert view.shape[1] * view.shape[2] == images[0].numel()
    assert view.shape[2] == SITES.get(unit, 6)
    assert torch.equal(threat.image(view, tuple(images.shape[1:])), images)


@pytest.mark.parametrize(
    ("unit", "site", "place"),
    [
        ("row", 2, (slice(None), 2, slice(None))),
        ("column", 3, (slice(None), slice(None), 3)),
        ("patch:2", 4, (slice(None), slice(2, 4), slice(2, 4))),
    ],
)
def test_a_structured_site_is_a_line_or_a_square(unit, site, place):
    images = torch.rand(1, 3, 4, 6)
    threat = Threat.of(1, unit)
    other = threat.view(images).clone()
    other[:, :, site] = 2.0
    changed = (threat.image(other, (3, 4, 6)) != images)[0]
    expected = torch.zeros(3, 4, 6, dtype=torch.bool)
    expected[place] = True
    assert torch.equal(changed, expected)
    assert threat.distance(images, threat.image(other, (3, 4, 6))).tolist() == [1]


def test_patches_must_tile_the_image():
    Threat.of(2, "patch:2").check(torch.empty(1, 3, 4, 6))
    with pytest.raises(RecipeError, match="do not tile"):
        Threat.of(1, "patch:4").check(torch.empty(1, 3, 4, 6))


@given(
    st.sampled_from(["pixel", "feature", "row", "column", "patch:2"]),
    st.lists(st.integers(0, 71), max_size=20),
)
@settings(max_examples=60, deadline=None)
def test_a_stored_perturbation_paints_the_same_image(unit, places):
    clean = torch.arange(72).reshape(3, 4, 6) / 72
    other = clean.clone()
    other.view(-1)[places] = 1.0
    stored = Threat.of(1, unit).encode(clean, other)
    assert torch.equal(torch.from_numpy(stored.paint(clean.numpy())), other)
    assert stored.fits((3, 4, 6))


def test_a_pixel_site_holds_the_channels_of_one_pixel():
    view = Threat.of(1).view(IMAGES)
    assert view.shape == (2, 3, 20)
    assert torch.equal(view[1, :, 7], IMAGES[1, :, 1, 2])


def test_a_feature_site_is_one_value():
    view = Threat.of(1, "feature").view(IMAGES)
    assert view.shape == (2, 1, 60)
    assert float(view[0, 0, 27]) == float(IMAGES[0, 1, 1, 2])


def test_opposite_changes_of_two_channels_do_not_cancel():
    other = IMAGES.clone()
    other[0, 0, 2, 3] += 0.25
    other[0, 1, 2, 3] -= 0.25
    assert Threat.of(1).distance(IMAGES, other).tolist() == [1, 0]
    assert Threat.of(1, "feature").distance(IMAGES, other).tolist() == [2, 0]
    assert Threat.of(1).changed(IMAGES, other)[0].nonzero().tolist() == [[13]]


@given(st.lists(st.integers(0, 59), max_size=30))
@settings(max_examples=50, deadline=None)
def test_counts_are_sets_of_changed_sites(changed):
    other = IMAGES.clone()
    for place in changed:
        other[1].view(-1)[place] = 2.0
    assert int(Threat.of(1, "feature").distance(IMAGES, other)[1]) == len(set(changed))
    assert int(Threat.of(1).distance(IMAGES, other)[1]) == len({p % 20 for p in changed})


def test_a_budget_larger_than_the_image_is_refused():
    Threat.of(20).check(IMAGES)
    Threat.of(60, "feature").check(IMAGES)
    with pytest.raises(RecipeError, match="20 pixels"):
        Threat.of(21).check(IMAGES)


@given(
    st.integers(1, 12), st.lists(st.sampled_from([0.0, 1.0, -1.0, 2.0]), min_size=12, max_size=12)
)
@settings(max_examples=60, deadline=None)
def test_top_mask_takes_exactly_k_of_the_largest_even_with_ties(size, scores):
    values = torch.tensor([scores])
    mask = top_mask(values, size)
    assert int(mask.sum()) == size
    if size < 12:
        assert float(values[mask].min()) >= float(values[~mask].max())


def test_corners_follow_the_sign():
    direction = torch.tensor([[0.3, -0.2, 0.0]])
    assert corners(torch.rand(1, 3), direction).tolist() == [[1.0, 0.0, 0.0]]


@given(used=st.sets(st.integers(0, 30), min_size=1, max_size=30), order=st.randoms())
def test_free_sites_are_the_complement(used, order):
    shuffled = list(used)
    order.shuffle(shuffled)
    free = 31 - len(used)
    found = free_sites(torch.tensor([shuffled]), torch.arange(free)[None])[0].tolist()
    assert found == sorted(set(range(31)) - used)
