"""Overlap, interpolation and gradients against numbers worked out by hand."""

import pytest
import torch
from torch import nn

from robust0.attacks.sparse_rs import SparseRS
from robust0.errors import ModelError, RecipeError
from robust0.rng import Stream
from robust0.study.gradients import gradient_gap
from robust0.study.interpolate import along
from robust0.study.overlap import chance_distance, chance_location, chance_overlap, overlaps
from robust0.study.perturb import AuditAttack, StudyImages, TrainingAttack, class_count
from robust0.threats import Threat
from robust0.training.methods.inner import SparsePGDInner
from tests.study.tiny import images_and_labels, tiny_network


def painted(clean, sites, value):
    image = clean.clone()
    image.flatten(2)[:, :, sites] = value
    return image


def test_distances_of_known_perturbations():
    clean = torch.zeros(1, 3, 4, 4)
    first = painted(clean, [0, 1, 2, 3], 1.0)
    second = painted(painted(clean, [2], 1.0), [3, 4, 5], 0.5)
    found = overlaps(Threat.of(4), clean, first, second)
    # They differ at 0, 1, 4, 5 and in the colour of 3; both change 2 and 3.
    assert found.distance.tolist() == [5 / 8]
    assert found.location.tolist() == [4 / 8]
    assert found.overlap.tolist() == [2 / 4]
    assert (found.first.tolist(), found.second.tolist()) == ([4], [4])


def test_disjoint_is_one_equal_is_zero_and_untouched_images_are_left_out():
    clean = torch.zeros(3, 3, 4, 4)
    first = painted(clean, [0, 1], 1.0)
    second = torch.cat([first[:1], painted(clean[:1], [5, 6], 1.0), clean[:1]])
    found = overlaps(Threat.of(2), clean, first, second)
    assert found.rows.tolist() == [0, 1]
    assert found.distance.tolist() == found.location.tolist() == [0.0, 1.0]
    assert found.overlap.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("first", "second"), [(20, 20), (120, 20), (5, 40)])
def test_chance_levels_are_what_blind_draws_do(first, second):
    sites, draws = 256, 4000
    stream, ids = Stream.of("chance"), torch.arange(draws)
    zero, clean = torch.zeros_like(ids), torch.zeros(draws, 1, 16, 16)
    images = []
    for size, lane, value in ((first, 0, 1.0), (second, 1, 0.5)):
        chosen = stream.subset(ids, zero, size, sites, lane)
        images.append(clean.flatten(2).scatter(2, chosen[:, None], value).view_as(clean))
    found = overlaps(Threat.of(1), clean, *images)
    assert found.overlap.mean().item() == pytest.approx(chance_overlap(first, sites), rel=0.05)
    expected = chance_distance(first, second, sites)
    assert found.distance.mean().item() == pytest.approx(expected, abs=2e-3)
    expected = chance_location(first, second, sites)
    assert found.location.mean().item() == pytest.approx(expected, abs=4e-3)


def test_chance_overlap_is_the_budget_over_the_pixels():
    assert [round(100 * chance_overlap(k, 1024), 1) for k in (20, 40, 120)] == [2.0, 3.9, 11.7]


class Brightness(nn.Module):
    """Class 1 where the image is brighter than a half."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, images):
        bright = (images.mean(dim=(1, 2, 3)) - 0.5) * self.weight
        return torch.stack([-bright, bright], dim=1)


def test_accuracy_falls_where_the_way_crosses_the_border():
    clean, perturbed = torch.zeros(2, 3, 4, 4), torch.ones(2, 3, 4, 4)
    perturbed[1] = 0.9
    labels = torch.zeros(2, dtype=torch.int64)
    found = along(Brightness(), clean, perturbed, labels, [0, 0.4, 0.52, 0.6, 1])
    assert found == [1.0, 1.0, 0.5, 0.0, 0.0]
    with pytest.raises(RecipeError):
        along(Brightness(), clean, perturbed, labels, [0, 1.5])
    with pytest.raises(RecipeError):
        along(Brightness(), clean, perturbed, labels, [])


def test_a_gradient_gap_of_a_linear_model_is_known():
    network = nn.Sequential(nn.Flatten(), nn.Linear(3, 2, bias=False))
    nn.init.zeros_(network[1].weight)
    labels = torch.tensor([0])
    first = torch.tensor([1.0, 0, 0]).view(1, 3, 1, 1)
    second = torch.tensor([0, 1.0, 0]).view(1, 3, 1, 1)
    # At zero weights the gradient is (p - onehot) x = (-.5, .5) outer x.
    found = gradient_gap(network, first, second, labels)
    assert found.first == found.second == pytest.approx(0.5**0.5)
    assert found.distance == pytest.approx(1.0)
    assert found.cosine == 0
    same = gradient_gap(network, first, first, labels)
    assert same.distance == 0
    assert same.cosine == pytest.approx(1)
    assert network[1].weight.grad is None


def study_images(count=6, size=8):
    images, labels = images_and_labels(count)
    return StudyImages(images[..., :size, :size], labels, torch.arange(count))


def attacks():
    threat = Threat.of(3)
    return [
        TrainingAttack("one-step", SparsePGDInner(), threat),
        AuditAttack("sparse-rs", "sparse-rs", SparseRS(queries=20), threat),
    ]


@pytest.mark.parametrize("attack", attacks(), ids=lambda attack: attack.label)
def test_attacks_keep_their_budget_and_repeat_their_draws(attack):
    network, data = tiny_network().train(), study_images()
    first = attack(network, data)
    assert attack.threat.distance(data.images, first).max() <= 3
    assert not torch.equal(first, data.images)
    assert torch.equal(first, attack(network, data))
    assert network.training
    if isinstance(attack, TrainingAttack):
        alone = torch.cat([attack(network, data.part(i, i + 1)) for i in range(len(data))])
        assert torch.allclose(first, alone, atol=1e-5)


def test_what_is_no_classifier_is_refused():
    data = study_images()
    with pytest.raises(ModelError, match="expected"):
        class_count(nn.Conv2d(3, 2, 1), data)
    with pytest.raises(ModelError, match="classes apart"):
        class_count(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), data)
