"""The proof of the whole: every image, every support and every colour, through real networks."""

import pytest
import torch

from robust0.certificates.partition import RandomPartition, StridedPartition, WalkingPartition
from robust0.certificates.runoff import run_off
from robust0.certificates.votes import leader, plurality, quantised, shares, soft
from tests.certificates.tiny import ExactNetwork, distances, every_image, nearest_other

CASES = [
    (StridedPartition(height=3, width=4, stride=3), 2),
    (StridedPartition(height=3, width=3, stride=2), 2),
    (WalkingPartition(height=2, width=3, views=5), 3),
    (WalkingPartition(height=1, width=7, views=7), 3),
    (RandomPartition(height=2, width=3, views=4, seed=5), 3),
]


def rules(views, network, classes):
    """The three votes over (N, T, ...) views."""
    # Equal views are classified once: an answer cannot depend on the company of the call.
    contents, which = views.flatten(0, 1).unique(dim=0, return_inverse=True)
    logits = network(contents) / 4
    scores = quantised(logits)[which].unflatten(0, views.shape[:2])
    portions = shares(logits.softmax(dim=1), 1000)[which].unflatten(0, views.shape[:2])
    yield "plurality", plurality(leader(scores), classes)
    yield "run-off", run_off(scores)
    yield "soft", soft(portions, 1000)


@pytest.mark.parametrize(("partition", "colours"), CASES)
def test_no_image_within_the_radius_is_answered_otherwise(partition, colours):
    images = every_image(partition.height, partition.width, colours)
    views = partition.split(images)
    apart = distances(images)
    proved = dict.fromkeys(["plurality", "run-off", "soft"], 0)
    for seed in range(6):
        classes = 2 + seed % 3
        network = ExactNetwork(views[0, 0].numel(), classes, seed)
        for rule, found in rules(views, network, classes):
            assert (nearest_other(found.labels, apart) > found.radius).all(), (rule, seed)
            proved[rule] += int((found.radius > 0).sum())
    assert min(proved.values()) > 0


def test_certificates_are_monotone():
    """Proved for r means proved for less: the radius is the end of an unbroken run."""
    partition = WalkingPartition(height=1, width=7, views=7)
    images = every_image(1, 7, 2)
    apart = distances(images)
    for _, found in rules(partition.split(images), ExactNetwork(14, 3, 1), 3):
        for radius in range(int(found.radius.max()) + 1):
            certified = found.radius >= radius
            same = (found.labels[:, None] == found.labels) | (apart > radius)
            assert same[certified].all()


def test_the_network_is_exact_in_any_company():
    network = ExactNetwork(14, 3, 1)
    views = WalkingPartition(height=1, width=7, views=7).split(every_image(1, 7, 2))
    assert torch.equal(network(views)[5:6], network(views[5:6]))
