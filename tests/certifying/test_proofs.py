"""The proofs at the level of the classifiers themselves: every image of a few pixels, in all ways.

The networks inside are exact in float32 (small integer weights), so an answer is a function of the
image and nothing else; what is tested is the rule, its certificate, and that the two agree.
"""

from itertools import pairwise

import pytest
import torch
from torch import nn

from robust0.certificates.partition import RandomPartition, StridedPartition, WalkingPartition
from robust0.certifying.classifiers import Sampling, certifier_of
from robust0.models.voting import AblationSmoothing, MaskCover, ViewVoting
from tests.certificates.tiny import ExactNetwork, distances, every_image, nearest_other

RULES = ("plurality", "run-off", "soft")
# Partition, colours, and seeds of networks that use their radii up: one more pixel would do.
VIEWS = [
    (StridedPartition(height=3, width=4, stride=3), 2, (4,)),
    (StridedPartition(height=3, width=3, stride=2), 2, (5, 7)),
    (WalkingPartition(height=1, width=7, views=7), 3, (1, 4)),
    (RandomPartition(height=2, width=3, views=4, seed=5), 3, (1, 5)),
]


class Exact(nn.Module):
    """A network whose logits are exact in any company."""

    def __init__(self, inputs, classes, seed):
        super().__init__()
        self.network = ExactNetwork(inputs, classes, seed)

    def forward(self, parts):
        return self.network(parts) / 4


def voting(partition, classes, seed, rule="plurality"):
    view = partition.split(torch.zeros(1, 1, partition.height, partition.width))[0, 0]
    return ViewVoting(Exact(view.numel(), classes, seed), partition, rule, classes)


def proofs(classifier, images, sampling=None, pixels=(1, 2)):
    shape = tuple(images.shape[1:])
    certifier = certifier_of(classifier, shape, pixels, sampling or Sampling(), "it")
    return certifier, certifier.prove(images, torch.arange(len(images)))


@pytest.mark.parametrize(("partition", "colours", "seeds"), VIEWS)
@torch.no_grad()
def test_no_image_within_the_radius_is_answered_otherwise(partition, colours, seeds):
    """Every image, every support and every colour; the answers are those of ``forward``."""
    images = every_image(partition.height, partition.width, colours)
    apart = distances(images)
    proved, tight = dict.fromkeys(RULES, 0), dict.fromkeys(RULES, 0)
    for seed in seeds:
        certifier, made = proofs(voting(partition, 2 + seed % 3, seed), images)
        for rule in RULES:
            answers = certifier.classifier(rule)(images).argmax(dim=1)
            labels = torch.tensor([proof[rule].label for proof in made])
            radius = torch.tensor([proof[rule].radius for proof in made])
            assert torch.equal(answers, labels)
            nearest = nearest_other(answers, apart)
            assert (nearest > radius).all(), (rule, seed)
            proved[rule] += int((radius > 0).sum())
            tight[rule] += int(((nearest == radius + 1) & (radius > 0)).sum())
    assert min(proved.values()) > 0
    assert min(tight.values()) > 0  # a radius larger by one would have been found out


@pytest.mark.parametrize("pixels", [1, 2])
@pytest.mark.parametrize(
    ("height", "width", "colours", "seeds"), [(3, 3, 2, (1, 2)), (2, 3, 3, (2, 3))]
)
@torch.no_grad()
def test_no_image_within_the_budget_moves_an_answer_covered_by_masks(
    height, width, colours, seeds, pixels
):
    images = every_image(height, width, colours)
    apart = distances(images)
    lattices = StridedPartition(height=height, width=width, stride=2)
    proved, moved = 0, 0
    for seed in seeds:
        cover = MaskCover(Exact(2 * height * width, 3, seed), lattices, pixels, 3)
        _, made = proofs(cover, images, pixels=(pixels,))
        answers = cover(images).argmax(dim=1)
        decided = cover.decide(images)
        for image, proof in enumerate(made):
            answer = proof[f"masks-{pixels}"]
            assert answer.label == int(answers[image]) == int(decided.labels[image])
            assert answer.radius == int(decided.radius[image])
            same = answers[apart[image] <= pixels] == answers[image]
            proved += answer.radius > 0
            moved += not same.all()
            assert same.all() or answer.radius == 0
    assert proved > 10
    assert moved > 10


@torch.no_grad()
def test_ablation_covers_the_smoothed_answer():
    """Against the exact probabilities over every mask: false certificates are rarer than alpha."""
    side, keep, alpha = 7, 1, 0.2
    images = every_image(1, side, 2)[::3]
    false, made = 0, 0
    for seed in range(6):
        network = Exact(2 * side, 3, seed)
        classifier = AblationSmoothing(network, keep, 3, seed=seed)
        sampling = Sampling(choose=20, bound=60, alpha=alpha)
        _, found = proofs(classifier, images, sampling)
        truth = smoothed_radius(network, every_image(1, side, 2), images, keep)
        for proof, (label, radius) in zip(found, truth, strict=True):
            answer = proof["ablation"]
            if answer.label is not None and answer.radius > 0:
                made += 1
                false += answer.label != label or answer.radius > radius
    assert made > 50
    # The bound also covers answers that are right although their interval missed, so it is loose.
    assert false <= alpha * made


def smoothed_radius(network, everything, images, keep):
    """The likeliest class over all masks, and how many pixels really cannot move it."""
    side = images.shape[3]
    masks = torch.combinations(torch.arange(side), keep)
    visible = torch.zeros(len(masks), side, dtype=torch.bool).scatter_(1, masks, value=True)
    shown = torch.where(visible[None, :, None, None], everything[:, None], torch.zeros(()))
    marks = visible[None, :, None, None].float().expand_as(shown)
    logits = network(torch.cat([shown, marks], dim=2).flatten(0, 1))
    counts = nn.functional.one_hot(logits.argmax(dim=1).view(len(everything), -1), 3).sum(dim=1)
    answers = counts.argmax(dim=1)
    nearest = nearest_other(answers, distances(everything)) - 1
    where = [int((everything == image).flatten(1).all(dim=1).nonzero()) for image in images]
    return [(int(answers[row]), int(nearest[row])) for row in where]


@torch.no_grad()
def test_certificates_are_monotone_in_the_pixels():
    """Proved for r means proved for every number below: exhaustively, at every radius."""
    partition = WalkingPartition(height=1, width=7, views=7)
    images = every_image(1, 7, 2)
    apart = distances(images)
    certifier, made = proofs(voting(partition, 3, 1), images)
    for rule in RULES:
        answers = certifier.classifier(rule)(images).argmax(dim=1)
        radius = torch.tensor([proof[rule].radius for proof in made])
        held = []
        for pixels in range(int(radius.max()) + 2):
            same = (answers[:, None] == answers) | (apart > pixels)
            held.append(same.all(dim=1))
            assert held[-1][radius >= pixels].all()
        assert all((after <= before).all() for before, after in pairwise(held))


class Ballots(nn.Module):
    """Votes for the class that the first pixel of a view names; equal colours are a tie."""

    def forward(self, views):
        first = views[:, 0].flatten(1)[:, :1]
        return torch.cat([first == 0, first == 1, first == 1], dim=1).float()


@torch.no_grad()
def test_ties_are_broken_alike_in_predicting_and_certifying():
    """Views that cannot tell 1 from 2 vote for 1; equal counts go to the smaller label."""
    partition = WalkingPartition(height=1, width=4, views=4)
    classifier = ViewVoting(Ballots(), partition, "plurality", 3)
    images = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]]).float().view(3, 1, 1, 4)
    # A view's first pixel is its own only in its own view, so hidden ones read as 0 there.
    certifier, made = proofs(classifier, images)
    for rule in RULES:
        answers = certifier.classifier(rule)(images).argmax(dim=1).tolist()
        assert answers == [proof[rule].label for proof in made]
        assert 2 not in answers
    every = every_image(1, 4, 2)
    for rule in RULES:
        model = certifier.classifier(rule)
        answers = model(every).argmax(dim=1)
        radius = model.decide(model.view_logits(every)).radius
        assert (nearest_other(answers, distances(every)) > radius).all()


@torch.no_grad()
def test_what_floats_do_at_their_edge_is_a_vote_like_any_other():
    """A view that overflows casts some vote; no answer becomes undefined."""

    class Wild(nn.Module):
        def forward(self, views):
            wild = views[:, 0].flatten(1).amax(dim=1, keepdim=True)
            weights = torch.tensor([[1.0, torch.inf, -torch.inf]])
            return torch.where(wild > 0, wild * weights * torch.nan, wild + weights)

    partition = WalkingPartition(height=1, width=5, views=5)
    every = every_image(1, 5, 2)
    certifier, made = proofs(ViewVoting(Wild(), partition, "plurality", 3), every)
    for rule in RULES:
        answers = certifier.classifier(rule)(every).argmax(dim=1)
        assert answers.tolist() == [proof[rule].label for proof in made]
        radius = torch.tensor([proof[rule].radius for proof in made])
        assert (nearest_other(answers, distances(every)) > radius).all()
