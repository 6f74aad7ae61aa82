import pytest
import torch
from torch import nn

from robust0.attacks.judge import FRAGILE, judge
from robust0.auditing.prune import prune
from robust0.models.fast.oracle import Oracle, frozen
from robust0.threats import Threat

CPU = torch.device("cpu")


class Linear(nn.Module):
    """Two classes; the first one's lead is a linear score of the image."""

    def __init__(self, weight, bias):
        super().__init__()
        self.weight, self.bias, self.calls = nn.Parameter(weight), bias, 0

    def forward(self, images):
        self.calls += 1
        score = (images * self.weight).flatten(1).sum(dim=1) + self.bias
        return torch.stack([score / 2, -score / 2], dim=1)


def posed(unit, *, count=24, sites=12, seed=0):
    """Hits on a linear model: random sites at their best corner, more than are needed."""
    draws = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, 6, 6, generator=draws)
    clean = torch.rand(count, 3, 6, 6, generator=draws)
    threat = Threat.of(sites, unit)
    _, total = threat.shape(clean)
    flat, best = threat.view(clean), threat.view((weight < 0).float().expand_as(clean))
    attempts, taken = [], []
    for row in range(count):
        chosen = torch.randperm(total, generator=draws)[:sites].sort().values
        hit = flat[row : row + 1].clone()
        hit[0, :, chosen] = best[row][:, chosen]
        attempts.append(threat.encode(clean[row], threat.image(hit, (3, 6, 6))[0]))
        taken.append(chosen)
    gains = (threat.view(weight[None]) * (flat - best)).sum(dim=1)  # (B, S) what a site takes away
    chosen = torch.stack(taken)
    taken = gains.gather(1, chosen).sum(dim=1)
    before = (clean * weight).flatten(1).sum(dim=1)
    # Half of what each hit takes away is needed: every hit holds with room to spare.
    bias = float((taken / 2 - before).median())
    model = Linear(weight, bias)
    score = before + bias
    keep = [row for row in range(count) if 0.05 < float(score[row]) < float(taken[row]) - 0.05]
    assert len(keep) >= 8
    used = gains.gather(1, chosen)
    return model, threat, clean[keep], [attempts[row] for row in keep], used[keep], score[keep]


@pytest.mark.parametrize(
    ("unit", "sites"), [("pixel", 12), ("feature", 12), ("row", 5), ("column", 4), ("patch:2", 7)]
)
def test_on_a_linear_model_pruning_is_optimal(unit, sites):
    model, threat, clean, attempts, gains, score = posed(unit, sites=sites)
    labels = torch.zeros(len(clean), dtype=torch.int64)
    with frozen(model):
        found = prune(Oracle(model, 16, CPU), threat, clean, attempts, labels)
    for row, (less, attempt) in enumerate(zip(found, attempts, strict=True)):
        best = gains[row].sort(descending=True).values
        # Sites act independently: the fewest are the strongest ones. Of two logits, a half of the
        # score and its opposite, the spread is half the score.
        needed = score[row] + FRAGILE * score[row].abs() / 2
        fewest = int((best.cumsum(dim=0) <= needed).sum()) + 1
        assert less.distance == fewest
        assert set(less.attempt.places.tolist()) <= set(attempt.places.tolist())


def test_what_is_left_is_verified_and_keeps_its_colours():
    model, threat, clean, attempts, _, _ = posed("pixel")
    labels = torch.zeros(len(clean), dtype=torch.int64)
    with frozen(model):
        oracle = Oracle(model, 16, CPU)
        found = prune(oracle, threat, clean, attempts, labels)
        images = torch.stack(
            [
                torch.from_numpy(p.attempt.paint(c.numpy()))
                for p, c in zip(found, clean, strict=True)
            ]
        )
        verdict = judge(oracle, threat, clean, images, labels)
    assert verdict.fooled.all()
    assert not verdict.fragile.any()
    assert [p.margin for p in found] == verdict.margin.tolist()
    assert [p.prediction for p in found] == verdict.prediction.tolist()
    for less, attempt in zip(found, attempts, strict=True):
        colours = dict(zip(attempt.places.tolist(), attempt.values.tolist(), strict=True))
        for site, value in zip(less.attempt.places.tolist(), less.attempt.values, strict=True):
            assert value.tolist() == colours[site]


@pytest.mark.parametrize(("rows", "most"), [(1, 1.0), (16, 0.5), (64, 0.35)])
def test_a_hit_costs_at_most_one_call_per_site_and_fewer_if_rows_can_ask_ahead(rows, most):
    model, threat, clean, attempts, _, _ = posed("pixel", sites=30)
    labels = torch.zeros(1, dtype=torch.int64)
    for image, attempt in zip(clean, attempts, strict=True):
        oracle = Oracle(model, rows, CPU)
        oracle.batch_size, model.calls = rows, 0
        with frozen(model):
            prune(oracle, threat, image[None], [attempt], labels)
        # The scale, the gradient, and the last look.
        assert model.calls <= most * len(attempt.places) + 3


def test_company_does_not_matter():
    model, threat, clean, attempts, _, _ = posed("pixel")
    labels = torch.zeros(len(clean), dtype=torch.int64)
    with frozen(model):
        oracle = Oracle(model, 16, CPU)
        together = prune(oracle, threat, clean, attempts, labels)
        alone = [
            prune(oracle, threat, clean[row : row + 1], [attempts[row]], labels[:1])[0]
            for row in range(len(clean))
        ]
    for one, other in zip(together, alone, strict=True):
        assert one.attempt.places.tolist() == other.attempt.places.tolist()
        assert one.margin == other.margin


@pytest.mark.parametrize("factor", [2.0**-14, 2.0**10])
def test_the_scale_of_the_logits_does_not_matter(factor):
    model, threat, clean, attempts, _, _ = posed("pixel")
    labels = torch.zeros(len(clean), dtype=torch.int64)
    scaled = Linear(model.weight.detach() * factor, model.bias * factor)
    kept = []
    for network in (model, scaled):
        with frozen(network):
            kept.append(prune(Oracle(network, 16, CPU), threat, clean, attempts, labels))
    for one, other in zip(*kept, strict=True):
        assert one.attempt.places.tolist() == other.attempt.places.tolist()
        assert one.fragile == other.fragile


def test_a_hit_by_a_hair_is_left_as_it_is():
    weight = torch.ones(1, 2, 2)
    clean = torch.full((1, 1, 2, 2), 0.5)
    # All four pixels black: the score falls from 2 + bias to bias = -0.0001.
    model = Linear(weight, -1e-4)
    attempt = Threat.of(4).encode(clean[0], torch.zeros(1, 2, 2))
    with frozen(model):
        (less,) = prune(Oracle(model, 16, CPU), Threat.of(4), clean, [attempt], torch.tensor([0]))
    assert less.fooled
    assert less.fragile
    assert less.distance == 4
