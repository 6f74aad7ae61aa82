"""The run-off against a plain reading of its rule and every other content of the changed views."""

from functools import cache
from itertools import combinations, combinations_with_replacement, permutations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.certificates.runoff import run_off
from tests.certificates.tiny import ballot_boxes, changed_views, nearest_other


def rankings(classes):
    """(K!, K) scores, one row for each order of the classes."""
    return torch.tensor(list(permutations(range(classes))))


def plain_winner(votes, prefers, classes):
    """The rule as written: ``prefers[t][i][j]`` says whether view t has i before j."""
    votes_for = [votes.count(c) for c in range(classes)]
    one, two = sorted(sorted(range(classes), key=lambda c: (-votes_for[c], c))[:2])
    for_one = sum(view[one][two] for view in prefers)
    return one if 2 * for_one >= len(votes) else two


def reading(scores):
    """Votes and preferences of one table (T, K) of scores."""
    order = [sorted(range(len(view)), key=lambda c: (-view[c], c)) for view in scores]
    prefers = [
        [[place.index(i) < place.index(j) for j in place_range] for i in place_range]
        for place in order
        for place_range in [range(len(place))]
    ]
    return [place[0] for place in order], prefers


def published(scores):
    """The radius of Hammoudeh & Lowd's certificate, as their text and tables give it."""
    votes, prefers = reading(scores)
    classes = len(scores[0])
    n = [votes.count(c) for c in range(classes)]
    y = plain_winner(votes, prefers, classes)
    s = min((c for c in range(classes) if c != y), key=lambda c: (-n[c], c))

    @cache
    def push(i, j):
        if min(i, j) < 2:
            return -(-max(i, j) // 2)
        return 1 + min(push(i - 2, j - 1), push(i - 1, j - 2))

    def gap(c, other):
        return max(0, n[c] - n[other] + (other > c))

    def duel(c):
        ahead = sum(view[y][c] for view in prefers)
        return max(0, 2 * ahead - len(votes) + (c > y))

    rivals = [c for c in range(classes) if c != y]
    out = [push(gap(y, a), gap(y, b)) for a, b in combinations(rivals, 2)]
    lost = [max(-(-gap(s, c) // 2) if c != s else 0, -(-duel(c) // 2)) for c in rivals]
    return min(out + lost) - 1


@pytest.mark.parametrize(
    ("classes", "views"), [(2, 7), (3, 1), (3, 2), (3, 6), (3, 10), (4, 2), (4, 3)]
)
def test_the_radius_is_exact_over_every_table(classes, views):
    counts, boxes = ballot_boxes(len(rankings(classes)), views)
    tables = rankings(classes)[boxes]
    found = run_off(tables)
    assert found.labels.tolist() == [
        plain_winner(*reading(table), classes) for table in tables.tolist()
    ]
    assert torch.equal(found.radius + 1, nearest_other(found.labels, changed_views(counts)))


@settings(max_examples=25)
@given(st.data(), st.integers(4, 7))
def test_the_radius_is_exact_with_four_classes(data, views):
    orders = rankings(4)
    few = data.draw(st.lists(st.integers(0, 23), min_size=1, max_size=4))  # so that some lead
    drawn = data.draw(st.lists(st.sampled_from(few), min_size=views, max_size=views))
    found = run_off(orders[torch.tensor([drawn])])
    radius = int(found.radius)
    for changed in (radius, radius + 1):
        if changed > 3:
            return
        spread = torch.tensor(list(combinations_with_replacement(range(24), changed)))
        tables = []
        for kept in combinations(drawn, views - changed):
            rest = torch.tensor(kept, dtype=torch.int64).expand(len(spread), -1)
            tables.append(torch.cat([rest, spread.long().reshape(len(spread), changed)], dim=1))
        moved = run_off(orders[torch.cat(tables)]).labels
        assert bool((moved == found.labels).all()) == (changed <= radius)


def test_views_that_contradict_themselves_gain_nothing():
    """A changed view may vote for one class and prefer others, in any combination."""
    classes, views = 3, 3
    pairs = list(combinations(range(classes), 2))
    wild = []
    for vote, bits in product(range(classes), product([False, True], repeat=len(pairs))):
        prefers = [[False] * classes for _ in range(classes)]
        for (i, j), bit in zip(pairs, bits, strict=True):
            prefers[i][j], prefers[j][i] = bit, not bit
        wild.append((vote, prefers))
    for table in product(rankings(classes).tolist(), repeat=views):
        found = run_off(torch.tensor([table]))
        votes, prefers = reading(table)
        for where in combinations(range(views), int(found.radius)):
            for content in product(wild, repeat=len(where)):
                cast, liked = list(votes), list(prefers)
                for view, (vote, prefer) in zip(where, content, strict=True):
                    cast[view], liked[view] = vote, prefer
                assert plain_winner(cast, liked, classes) == found.labels.item()


@settings(max_examples=150)
@given(st.data(), st.integers(2, 5), st.integers(1, 20), st.integers(1, 4))
def test_scores_with_ties_are_read_as_the_rule_says_and_never_certify_less_than_published(
    data, classes, views, height
):
    scores = st.lists(st.integers(0, height), min_size=classes, max_size=classes)
    table = data.draw(st.lists(scores, min_size=views, max_size=views))
    found = run_off(torch.tensor([table]))
    assert found.labels.item() == plain_winner(*reading(table), classes)
    assert 0 <= published(table) <= found.radius.item() < views


def test_the_published_radius_can_be_smaller():
    _, boxes = ballot_boxes(6, 8)
    tables = rankings(3)[boxes]
    theirs = torch.tensor([published(table) for table in tables.tolist()])
    ours = run_off(tables).radius
    assert (ours >= theirs).all()
    assert (ours > theirs).any()


def test_rows_do_not_depend_on_their_company():
    _, boxes = ballot_boxes(6, 5)
    tables = rankings(3)[boxes]
    together = run_off(tables)
    for row in range(0, len(tables), 17):
        alone = run_off(tables[row : row + 1])
        assert alone.radius.item() == together.radius[row]
        assert alone.labels.item() == together.labels[row]
