"""Sparse noise: as many sites as promised, uniformly many, inside the box, nothing else touched."""

import pytest
import torch
from scipy import stats

from robust0.rng import Stream
from robust0.threats import Threat
from robust0.training.methods.noise import SparseNoise

STREAM = Stream.of("noise test")


@pytest.mark.parametrize("threat", [Threat.of(5), Threat.of(5, "feature")])
def test_the_number_of_chosen_sites_is_uniform_on_0_to_2k(threat):
    ids = torch.arange(4400)
    clean = threat.view(
        torch.rand(1, 3, 8, 8, generator=torch.Generator()).expand(4400, -1, -1, -1)
    )
    sites, chosen = SparseNoise().draw(clean, ids, STREAM, threat.budget)
    counts = torch.bincount(chosen.sum(dim=1), minlength=11)
    assert len(counts) == 11
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4
    ordered = sites.sort(dim=1).values
    assert (ordered.diff(dim=1) > 0).all(), "chosen sites are distinct"


def test_every_site_is_equally_likely():
    ids = torch.arange(6000)
    clean = torch.zeros(6000, 3, 16)
    sites, chosen = SparseNoise().draw(clean, ids, STREAM, 4)
    hits = torch.bincount(sites[chosen], minlength=16)
    assert stats.chisquare(hits.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("values", ["box", "uniform-colour"])
@pytest.mark.parametrize("threat", [Threat.of(6), Threat.of(6, "feature")])
def test_noise_stays_in_the_box_and_on_its_sites(values, threat):
    images = torch.rand(64, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    noisy = SparseNoise(values=values)(images, torch.arange(64), STREAM, threat)
    assert noisy.shape == images.shape
    assert noisy.min() >= 0
    assert noisy.max() <= 1
    assert threat.distance(images, noisy).max() <= 12
    assert threat.distance(images, noisy).float().mean() > 3


def test_draws_depend_on_the_id_not_on_the_company():
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    noise, ids, threat = SparseNoise(), torch.tensor([7, 3, 900, 12]), Threat.of(6)
    together = noise(images, ids, STREAM, threat)
    alone = torch.cat([noise(images[i : i + 1], ids[i : i + 1], STREAM, threat) for i in range(4)])
    assert torch.equal(together, alone)


def test_a_budget_larger_than_the_image_noises_at_most_all_of_it():
    images = torch.rand(8, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    noisy = SparseNoise()(images, torch.arange(8), STREAM, Threat.of(16))
    assert noisy.shape == images.shape
