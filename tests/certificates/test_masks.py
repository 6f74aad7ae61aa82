"""Double masking on every image of a few pixels, with networks and with arbitrary functions."""

from itertools import combinations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.certificates.masks import DoubleMasking, Look, visible_pixels
from robust0.certificates.partition import StridedPartition, WalkingPartition, hide
from robust0.errors import RecipeError
from tests.certificates.tiny import ExactNetwork, distances, every_image


@pytest.mark.parametrize(
    ("lattices", "pixels", "passes"),
    [(9, 1, 45), (9, 2, 246), (9, 3, 420), (16, 1, 136), (16, 2, 2500), (16, 3, 14756)],
)
def test_a_certificate_looks_at_every_union_once(lattices, pixels, passes):
    masking = DoubleMasking(lattices=lattices, pixels=pixels)
    unions = list(masking.unions())
    assert masking.passes == passes == len(unions) == len(set(unions))
    assert masking.certify(lambda masks: [3] * len(masks)) == Look(3, passes)


@pytest.mark.parametrize(("lattices", "pixels"), [(5, 1), (5, 2), (5, 3), (5, 5), (7, 2)])
def test_the_unions_are_those_of_any_two_masks(lattices, pixels):
    masking = DoubleMasking(lattices=lattices, pixels=pixels)
    pairs = product(masking.masks(), repeat=2)
    assert {tuple(sorted({*one, *two})) for one, two in pairs} == set(masking.unions())


def test_it_stops_at_the_first_disagreement():
    asked = []

    def classify(masks):
        asked.extend(masks)
        return [int(mask == (1, 2)) for mask in masks]

    masking = DoubleMasking(lattices=4, pixels=1, rows=1)
    assert masking.certify(classify) == Look(None, 8)
    assert asked == [(0,), (1,), (2,), (3,), (0, 1), (0, 2), (0, 3), (1, 2)]
    assert DoubleMasking(lattices=4, pixels=1, rows=5).certify(classify) == Look(None, 10)


def test_more_pixels_than_half_the_lattices_hide_everything_at_most():
    masking = DoubleMasking(lattices=3, pixels=2)
    assert list(masking.unions()) == [(0, 1), (0, 2), (1, 2), (0, 1, 2)]


def plain_answer(labels, lattices, pixels):
    """The rule as written, from a dictionary of labels."""
    masks = list(combinations(range(lattices), pixels))
    first = [labels[mask] for mask in masks]
    if len(set(first)) == 1:
        return first[0]
    majority = min(set(first), key=lambda c: (-first.count(c), c))
    for mask in masks:
        seconds = {labels[tuple(sorted({*mask, *other}))] for other in masks}
        if labels[mask] != majority and len(seconds) == 1:
            return labels[mask]
    return majority


@settings(max_examples=60)
@given(st.data(), st.integers(2, 5), st.integers(1, 2), st.integers(1, 9))
def test_the_answer_is_the_rule_as_written_in_calls_of_any_size(data, lattices, pixels, rows):
    masking = DoubleMasking(lattices=lattices, pixels=pixels, rows=rows)
    unions = list(masking.unions())
    label = st.sampled_from([0, 0, 0, 1, 2])
    drawn = data.draw(st.lists(label, min_size=len(unions), max_size=len(unions)))
    labels = dict(zip(unions, drawn, strict=True))
    calls = []

    def classify(masks):
        calls.append(len(masks))
        return [labels[mask] for mask in masks]

    look = masking.answer(classify)
    assert look.label == plain_answer(labels, lattices, pixels)
    assert look.passes == sum(calls) <= masking.passes
    assert max(calls) <= rows


@settings(max_examples=150)
@given(st.data(), st.integers(2, 4), st.integers(1, 2))
def test_whatever_the_attacked_lattices_show_a_certified_answer_stays(data, lattices, pixels):
    """Unions that hide all changed lattices keep the clean label; all others are the attacker's."""
    pixels = min(pixels, lattices)
    masking = DoubleMasking(lattices=lattices, pixels=pixels)
    changed = set(data.draw(st.sampled_from(list(combinations(range(lattices), pixels)))))
    free = [mask for mask in masking.unions() if not changed <= set(mask)]
    drawn = data.draw(st.lists(st.integers(0, 2), min_size=len(free), max_size=len(free)))
    shown = dict.fromkeys(masking.unions(), 1) | dict(zip(free, drawn, strict=True))
    assert masking.certify(lambda masks: [1] * len(masks)).label == 1
    assert masking.answer(lambda masks: [shown[mask] for mask in masks]).label == 1


@pytest.mark.parametrize("pixels", [1, 2])
def test_every_small_assignment_of_an_attacker_is_survived(pixels):
    lattices = 3
    masking = DoubleMasking(lattices=lattices, pixels=pixels)
    for changed in combinations(range(lattices), pixels):
        free = [mask for mask in masking.unions() if not set(changed) <= set(mask)]
        for content in product(range(3), repeat=len(free)):
            shown = dict.fromkeys(masking.unions(), 1) | dict(zip(free, content, strict=True))
            assert masking.answer(lambda masks, s=shown: [s[m] for m in masks]).label == 1


def tables(partition, images, network, masking):
    """The label of every image under every union: one dictionary each."""
    unions = list(masking.unions())
    shape = (len(unions), 1, 1, partition.height, partition.width)
    seen = visible_pixels(partition.owner(), unions).reshape(shape)
    logits = network(hide(images[None], seen))
    labels = logits.argmax(dim=2).T.tolist()
    return [dict(zip(unions, row, strict=True)) for row in labels]


@pytest.mark.parametrize("pixels", [1, 2])
@pytest.mark.parametrize(
    ("partition", "colours"),
    [
        (StridedPartition(height=3, width=3, stride=2), 2),
        (WalkingPartition(height=2, width=3, views=5), 3),
    ],
)
def test_no_image_within_the_budget_moves_a_certified_answer(partition, colours, pixels):
    images = every_image(partition.height, partition.width, colours)
    apart = distances(images)
    masking = DoubleMasking(lattices=partition.views, pixels=pixels)
    certified = 0
    for seed in range(4):
        network = ExactNetwork(2 * partition.height * partition.width, 3, seed)
        labels = tables(partition, images, network, masking)
        answers = torch.tensor(
            [masking.answer(lambda m, s=row: [s[x] for x in m]).label for row in labels]
        )
        proofs = [masking.certify(lambda m, s=row: [s[x] for x in m]).label for row in labels]
        for image, proof in enumerate(proofs):
            if proof is not None:
                certified += 1
                assert (answers[apart[image] <= pixels] == proof).all()
    assert certified > 20


def test_what_makes_no_sense_is_refused():
    for lattices, pixels, rows in [(3, 4, 1), (3, 0, 1), (3, 1, 0)]:
        with pytest.raises(RecipeError):
            DoubleMasking(lattices=lattices, pixels=pixels, rows=rows)


def test_visible_is_what_no_hidden_lattice_owns():
    owner = torch.tensor([0, 1, 2, 0])
    assert visible_pixels(owner, [(0,), (1, 2), ()]).int().tolist() == [
        [0, 1, 1, 0],
        [1, 0, 0, 1],
        [1, 1, 1, 1],
    ]
