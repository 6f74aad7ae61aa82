import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.errors import RecipeError
from robust0.threat import Threat, corners, free_sites, top_mask

IMAGES = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5) / 120


@pytest.mark.parametrize("budgets", [{}, {"pixels": 1, "features": 1}, {"pixels": 0}])
def test_a_threat_needs_one_positive_budget(budgets):
    with pytest.raises(RecipeError) as refused:
        Threat(**budgets)
    assert refused.value.hint


def test_names_and_units():
    assert str(Threat(pixels=20)) == "20 pixels"
    assert str(Threat(features=1)) == "1 feature"
    assert Threat.of(60, "feature") == Threat(features=60)
    assert (Threat(features=60).unit, Threat(features=60).budget) == ("feature", 60)


def test_a_pixel_site_holds_the_channels_of_one_pixel():
    view = Threat(pixels=1).view(IMAGES)
    assert view.shape == (2, 3, 20)
    assert torch.equal(view[1, :, 7], IMAGES[1, :, 1, 2])


def test_a_feature_site_is_one_value():
    view = Threat(features=1).view(IMAGES)
    assert view.shape == (2, 1, 60)
    assert float(view[0, 0, 27]) == float(IMAGES[0, 1, 1, 2])


def test_opposite_changes_of_two_channels_do_not_cancel():
    other = IMAGES.clone()
    other[0, 0, 2, 3] += 0.25
    other[0, 1, 2, 3] -= 0.25
    assert Threat(pixels=1).count(IMAGES, other).tolist() == [1, 0]
    assert Threat(features=1).count(IMAGES, other).tolist() == [2, 0]
    assert Threat(pixels=1).changed(IMAGES, other)[0].nonzero().tolist() == [[13]]


@given(st.lists(st.integers(0, 59), max_size=30))
@settings(max_examples=50, deadline=None)
def test_counts_are_sets_of_changed_sites(changed):
    other = IMAGES.clone()
    for place in changed:
        other[1].view(-1)[place] = 2.0
    assert int(Threat(features=1).count(IMAGES, other)[1]) == len(set(changed))
    assert int(Threat(pixels=1).count(IMAGES, other)[1]) == len({p % 20 for p in changed})


def test_a_budget_larger_than_the_image_is_refused():
    Threat(pixels=20).check(IMAGES)
    Threat(features=60).check(IMAGES)
    with pytest.raises(RecipeError, match="20 pixels"):
        Threat(pixels=21).check(IMAGES)


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
