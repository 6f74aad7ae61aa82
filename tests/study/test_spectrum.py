"""Curvature against what can be computed exactly."""

import numpy as np
import pytest
import torch
from torch import nn

from robust0.errors import RecipeError
from robust0.study.hessian import Hessian
from robust0.study.spectrum import spectral_density, top_eigenpairs
from robust0.study.weights import flat, random_vector, shaped, trainable
from tests.study.tiny import images_and_labels, tiny_network

SPECTRUM = torch.cat([torch.linspace(50, 100, 10), torch.linspace(-2, 2, 190)]).double()


class Quadratic(nn.Module):
    """w' A w / 2 as its only output, A with a known spectrum in a rotated basis."""

    def __init__(self):
        super().__init__()
        size = len(SPECTRUM)
        rotation, _ = torch.linalg.qr(random_vector(size * size, "rotation").view(size, size))
        self.register_buffer("matrix", rotation @ SPECTRUM.diag() @ rotation.T)
        self.weight = nn.Parameter(random_vector(size, "weight"))

    def forward(self, images):
        return (self.weight @ self.matrix @ self.weight / 2).expand(len(images), 1)

    def hessian(self, chunk=2):
        images = torch.zeros(5, 1, 1, 1)
        return Hessian(
            self, images, torch.zeros(5, dtype=torch.int64), chunk, lambda logits, _: logits[:, 0]
        )


def dense_hessian(network, images, labels):
    """The whole matrix, by torch alone."""
    weights = trainable(network)

    def loss(vector):
        named = dict(zip(dict(network.named_parameters()), shaped(vector, weights), strict=True))
        logits = torch.func.functional_call(network, named, (images,))
        return nn.functional.cross_entropy(logits, labels)

    return torch.autograd.functional.hessian(loss, flat([w.detach() for w in weights]))


def test_a_quadratic_has_its_own_spectrum():
    hessian = Quadratic().hessian()
    vector = random_vector(hessian.size, "v")
    expected = hessian.network.matrix @ vector
    assert torch.allclose(hessian @ vector, expected, atol=1e-3)
    found = top_eigenpairs(hessian, 10)
    assert np.allclose(found.values, SPECTRUM[:10].flip(0).numpy(), rtol=1e-5)
    for value, vector in zip(found.values, found.vectors, strict=True):
        assert (hessian @ vector - value * vector).norm() < 1e-2 * value


def test_ten_eigenvalues_cost_at_most_sixty_products():
    hessian = Quadratic().hessian()
    found = top_eigenpairs(hessian, 10)
    assert len(found.values) == 10
    assert found.products == hessian.products <= 60


def test_a_search_that_may_cost_little_says_what_it_did_not_find():
    flat_spectrum = Quadratic().hessian()
    flat_spectrum.network.matrix.copy_(torch.linspace(-1, 1, flat_spectrum.size).diag())
    found = top_eigenpairs(flat_spectrum, 10, products=41)
    assert found.products <= 41
    assert len(found.values) < found.asked == 10


@pytest.mark.parametrize(("count", "products"), [(0, 60), (200, 600), (10, 40)])
def test_what_cannot_be_found_is_refused(count, products):
    with pytest.raises(RecipeError):
        top_eigenpairs(Quadratic().hessian(), count, products=products)


def test_a_small_network_agrees_with_its_dense_hessian():
    network = tiny_network(2)
    images, labels = images_and_labels(7)
    dense = dense_hessian(network, images, labels).double()
    hessian = Hessian(network, images, labels, chunk=3)
    vector = random_vector(hessian.size, "v")
    assert torch.allclose(hessian @ vector, dense @ vector, atol=1e-4)
    exact = torch.linalg.eigvalsh(dense).flip(0)
    assert np.allclose(top_eigenpairs(hessian, 5).values, exact[:5].numpy(), rtol=1e-4)
    steepest = exact[exact.abs().argsort(descending=True)][:3]
    found = top_eigenpairs(hessian, 3, which="magnitude").values
    assert np.allclose(found, steepest.numpy(), rtol=1e-4)


def test_chunks_do_not_change_a_product():
    network = tiny_network()
    images, labels = images_and_labels(10)
    vector = random_vector(sum(w.numel() for w in network.parameters()), "v")
    products = [Hessian(network, images, labels, chunk) @ vector for chunk in (1, 4, 10)]
    assert torch.allclose(products[0], products[2], atol=1e-5)
    assert torch.allclose(products[1], products[2], atol=1e-5)


def test_no_call_of_the_network_holds_more_than_a_chunk():
    network, sizes = tiny_network(), []
    network.register_forward_pre_hook(lambda module, given: sizes.append(len(given[0])))
    images, labels = images_and_labels(11)
    hessian = Hessian(network, images, labels, chunk=4)
    hessian @ random_vector(hessian.size, "v")
    assert sizes == [4, 4, 3]


def test_a_product_leaves_the_network_as_it_was():
    network = tiny_network().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    images, labels = images_and_labels(6)
    hessian = Hessian(network, images, labels)
    hessian @ random_vector(hessian.size, "v")
    assert network.training
    assert all(w.grad is None for w in network.parameters())
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_a_density_integrates_to_one_and_has_the_moments_of_its_spectrum():
    hessian = Quadratic().hessian()
    density = spectral_density(hessian, steps=20, probes=6)
    assert density.products == hessian.products == 120
    assert sum(density.weights) == pytest.approx(1)
    grid = np.linspace(-30, 130, 4001)
    curve = density.smoothed(grid, 2.0)
    assert np.trapezoid(curve, grid) == pytest.approx(1, abs=1e-3)
    nodes, weights = np.array(density.nodes), np.array(density.weights)
    assert nodes.max() == pytest.approx(100, rel=0.01)
    assert nodes @ weights == pytest.approx(SPECTRUM.mean().item(), abs=1.5)
    above = weights[nodes > 25].sum()  # ten eigenvalues of two hundred
    assert above == pytest.approx(10 / 200, abs=0.02)


def test_as_many_steps_as_weights_give_the_spectrum_itself():
    network = tiny_network(width=1)
    images, labels = images_and_labels(4)
    hessian = Hessian(network, images, labels)
    density = spectral_density(hessian, steps=hessian.size, probes=1)
    exact = torch.linalg.eigvalsh(dense_hessian(network, images, labels).double())
    assert max(density.nodes) == pytest.approx(exact.max().item(), rel=1e-4)
    assert min(density.nodes) == pytest.approx(exact.min().item(), rel=1e-3, abs=1e-5)
