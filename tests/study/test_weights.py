"""Weights that were moved come back, whatever happened meanwhile."""

import pytest
import torch

from robust0.errors import ModelError, RecipeError
from robust0.study.landscape import Plane, grid_row, mean_loss, random_directions
from robust0.study.perturb import StudyImages, Unperturbed
from robust0.study.weights import moved, shaped, trainable
from tests.study.tiny import images_and_labels, tiny_network


def state(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def same(network, before):
    return all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def study_images(count):
    images, labels = images_and_labels(count)
    return StudyImages(images, labels, torch.arange(count))


@pytest.mark.parametrize("problem", [None, ValueError, KeyboardInterrupt, SystemExit])
def test_weights_come_back_bit_by_bit(problem):
    network = tiny_network()
    before = state(network)
    step = random_directions(network, 0)[0] / 3
    try:
        with moved(network, step):
            assert not same(network, before)
            if problem is not None:
                raise problem
    except (ValueError, KeyboardInterrupt, SystemExit):
        pass
    assert same(network, before)


@pytest.mark.parametrize("problem", [RuntimeError, KeyboardInterrupt])
def test_an_attack_that_fails_at_a_grid_point_leaves_the_weights(problem):
    network = tiny_network()
    before = state(network)
    calls = []

    def failing(model, data):
        calls.append(1)
        if len(calls) == 2:
            raise problem
        return data.images

    plane = Plane(random_directions(network, 0), 0.5, 3)
    with pytest.raises(problem):
        grid_row(network, study_images(4), failing, plane, 0)
    assert same(network, before)


def test_a_step_that_does_not_fit_leaves_the_weights():
    network = tiny_network()
    before = state(network)
    with pytest.raises(RuntimeError), moved(network, torch.ones(5)):
        pass
    assert same(network, before)


def test_the_middle_of_a_landscape_is_the_network_itself():
    network, data = tiny_network(), study_images(5)
    plane = Plane(random_directions(network, 0), 0.5, 3)
    middle = grid_row(network, data, Unperturbed(), plane, 1)
    assert middle[1] == mean_loss(network, data.images, data.labels)
    assert middle[0] != middle[1] != middle[2]
    assert plane.steps == [-0.5, 0.0, 0.5]


def test_random_directions_have_the_length_of_every_filter():
    network = tiny_network()
    weights = trainable(network)
    for direction in random_directions(network, 1):
        for part, weight in zip(shaped(direction, weights), weights, strict=True):
            if weight.ndim < 2:
                assert not part.any()
            else:
                lengths = part.flatten(1).norm(dim=1).float()
                assert torch.allclose(lengths, weight.flatten(1).norm(dim=1), rtol=1e-5)


@pytest.mark.parametrize(("span", "points"), [(0.5, 0), (0.5, 1), (0.5, 4), (0.0, 5), (-1.0, 5)])
def test_a_grid_of_nothing_is_refused(span, points):
    with pytest.raises(RecipeError):
        Plane(torch.zeros(2, 3), span, points)


def test_a_network_without_weights_is_refused():
    with pytest.raises(ModelError, match="no trainable weights"):
        trainable(torch.nn.Flatten())
