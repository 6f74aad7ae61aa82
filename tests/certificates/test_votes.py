"""Plurality and soft votes against every other content of the changed views."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.certificates.votes import leader, plurality, quantised, shares, soft
from robust0.errors import EvaluationError
from tests.certificates.tiny import ballot_boxes, changed_views, nearest_other


@pytest.mark.parametrize(("classes", "views"), [(2, 9), (3, 1), (3, 8), (4, 7), (5, 5)])
def test_plurality_is_exact_over_every_table(classes, views):
    counts, boxes = ballot_boxes(classes, views)
    found = plurality(boxes, classes)
    assert found.labels.tolist() == [
        min(range(classes), key=lambda c, row=row: (-row[c], c)) for row in counts.tolist()
    ]
    assert torch.equal(found.radius + 1, nearest_other(found.labels, changed_views(counts)))


@pytest.mark.parametrize(
    ("classes", "views", "whole"), [(2, 4, 4), (3, 3, 3), (3, 4, 2), (4, 3, 2)]
)
def test_soft_is_exact_over_every_table_of_distributions(classes, views, whole):
    ballots = torch.tensor(
        [p for p in product(range(whole + 1), repeat=classes) if sum(p) == whole]
    )
    _soft_is_exact(ballots, views, whole)


def test_soft_is_exact_where_rounded_shares_do_not_add_up():
    _soft_is_exact(torch.tensor(list(product(range(3), repeat=3))), 2, 2)
    _soft_is_exact(torch.tensor(list(product(range(4), repeat=2))), 3, 3)


def _soft_is_exact(ballots, views, whole):
    counts, boxes = ballot_boxes(len(ballots), views)
    found = soft(ballots[boxes], whole)
    sums = (counts @ ballots).tolist()
    assert found.labels.tolist() == [
        min(range(len(row)), key=lambda c, row=row: (-row[c], c)) for row in sums
    ]
    assert torch.equal(found.radius + 1, nearest_other(found.labels, changed_views(counts)))


@settings(max_examples=80)
@given(st.data(), st.integers(2, 6), st.integers(1, 30))
def test_soft_with_whole_votes_is_plurality(data, classes, views):
    label = st.integers(0, classes - 1)
    votes = torch.tensor([data.draw(st.lists(label, min_size=views, max_size=views))])
    whole = data.draw(st.integers(1, 1000))
    hard = plurality(votes, classes)
    same = soft(torch.nn.functional.one_hot(votes, classes) * whole, whole)
    assert torch.equal(hard.labels, same.labels)
    assert torch.equal(hard.radius, same.radius)


@settings(max_examples=80)
@given(st.data(), st.integers(2, 6), st.integers(1, 30))
def test_no_move_within_the_radius_alters_a_large_plurality(data, classes, views):
    label = st.integers(0, classes - 1)
    votes = data.draw(st.lists(label, min_size=views, max_size=views))
    found = plurality(torch.tensor([votes]), classes)
    moved = list(votes)
    for view in data.draw(st.permutations(range(views)))[: int(found.radius)]:
        moved[view] = data.draw(label)
    assert plurality(torch.tensor([moved]), classes).labels.item() == found.labels.item()


def test_ties_go_to_the_smaller_label_and_cost_the_larger_one_a_vote():
    tied = plurality(torch.tensor([[1, 1, 2, 2]]), 3)
    assert (tied.labels.item(), tied.radius.item()) == (1, 0)
    # Two votes ahead of a smaller label: one move ties and loses. Of a larger label: it stays.
    assert plurality(torch.tensor([[1, 1, 1, 0]]), 2).radius.item() == 0
    assert plurality(torch.tensor([[0, 0, 0, 1]]), 2).radius.item() == 1


@pytest.mark.parametrize("width", [2, 7, 64, 1000])
def test_the_leader_of_equals_is_the_first_in_any_width(width):
    assert not leader(torch.zeros(3, width, dtype=torch.int64)).any()


def test_integers_decide():
    with pytest.raises(EvaluationError, match="integers"):
        leader(torch.tensor([0.5, 0.25]))
    with pytest.raises(EvaluationError, match="between"):
        soft(torch.tensor([[[3, 0]]]), 2)
    with pytest.raises(EvaluationError, match="two classes"):
        leader(torch.tensor([[1]]))
    # In float32 these sums depend on their order; as shares they do not.
    parts = shares(torch.tensor([0.1, 0.7, 0.2]), 2**20)
    assert parts.dtype == torch.int64
    assert parts.sum() == parts.flip(0).sum() == 2**20


def test_quantising_is_defined_for_everything_and_keeps_order():
    strange = torch.tensor([-torch.inf, -3.0, torch.nan, 0.25, 1e30, torch.inf])
    whole = quantised(strange)
    assert whole.dtype == torch.int64
    assert (whole[1:] >= whole[:-1]).all()
    assert whole[2] == 0
    assert shares(strange, 100).tolist() == [0, 0, 0, 25, 100, 100]
