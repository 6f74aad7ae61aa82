"""The studies as Python functions."""

import pytest

from robust0 import studies
from robust0.errors import ModelError, RecipeError
from tests.study.tiny import images_and_labels, tiny_network


def test_every_study_of_a_module_is_one_call():
    network = tiny_network(1).train()
    images, labels = images_and_labels(6)
    given = (network, images, labels)
    (found,) = studies.spectrum(*given, "clean", top=2)["results"]
    assert len(found["values"]) == 2
    (found,) = studies.landscape(*given, eps=2, grid=3, directions="random")["results"]
    assert len(found["losses"]) == 3
    (found,) = studies.overlap(*given, "one-step,eps=5", "one-step,alpha=0.5", eps=2)["results"]
    assert found["changed"][0] > found["changed"][1]
    (found,) = studies.interpolate(*given, eps=2, shares=(0, 1))["results"]
    assert len(found["accuracy"]) == 2
    (found,) = studies.gradients(*given, against="multi-step,steps=2", eps=2)["results"]
    assert found["batch"]["mean"]["distance"] > 0
    assert network.training


def test_several_modules_go_by_name():
    images, labels = images_and_labels(6)
    pair = {"thin": tiny_network(1), "wide": tiny_network(2)}
    results = studies.interpolate(pair, images, labels, eps=2)["results"]
    assert [result["model"] for result in results] == ["thin", "wide"]


def test_a_module_does_not_say_how_it_was_trained():
    images, labels = images_and_labels(4)
    with pytest.raises(RecipeError, match="does not say how it was trained"):
        studies.spectrum(tiny_network(1), images, labels, "training", eps=2)
    with pytest.raises(ModelError):
        studies.interpolate({}, images, labels)
