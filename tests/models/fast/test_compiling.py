"""The softplus of compiled networks, and that it takes the place of torch's."""

import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.fx import symbolic_trace
from torch.nn import functional

from robust0.models.fast import compiling
from robust0.models.fast.compiling import compiled, softplus, with_quick_softplus
from robust0.models.fast.oracle import Oracle, frozen
from robust0.rng import seeded


def test_it_is_softplus_to_nearly_the_precision_of_float32():
    values = torch.cat([torch.linspace(-80, 80, 200_001), torch.linspace(-2, 2, 100_001)])
    exact = functional.softplus(values.double())
    error = (softplus(values).double() - exact).abs()
    assert (error <= 4e-7 * exact.clamp(min=1)).all()


def test_its_slope_is_the_sigmoid():
    values = torch.linspace(-30, 30, 1001, requires_grad=True)
    (slope,) = torch.autograd.grad(softplus(values).sum(), values)
    assert torch.allclose(slope, values.sigmoid())


def test_extremes_stay_what_they_are():
    values = torch.tensor([-torch.inf, torch.inf, torch.nan, 0.0])
    assert torch.allclose(softplus(values), functional.softplus(values), equal_nan=True)


def test_other_settings_and_types_are_torch_s():
    values = torch.linspace(-5, 5, 101)
    assert torch.equal(softplus(values, 2.0, 3.0), functional.softplus(values, 2.0, 3.0))
    half = values.bfloat16()
    assert torch.equal(softplus(half), functional.softplus(half))


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Softplus(beta=2.0)

    def forward(self, values):
        return self.second(functional.softplus(self.first(values))).relu()


def test_every_call_is_replaced_and_nothing_else():
    model, values = Mixed(), torch.randn(7, 4)
    graph = symbolic_trace(model)
    targets = [node.target for node in with_quick_softplus(graph).graph.nodes]
    assert targets.count(softplus) == 1  # the module keeps its own beta and its own node
    assert functional.softplus not in targets
    assert torch.allclose(graph(values), model(values), atol=1e-6)


def test_each_model_is_compiled_however_many_there_were_before(monkeypatch):
    made = []

    def backend(graph, examples):
        made.append(graph)
        return graph.forward

    monkeypatch.setattr(compiling, "_inductor", backend)
    images = torch.rand(4, 3, 6, 6)
    for count in range(1, 2 * torch._dynamo.config.recompile_limit):
        model = nn.Sequential(nn.Flatten(), nn.Linear(108, 5))
        with torch.no_grad():
            assert torch.allclose(compiled(model)(images), model(images))
        assert len(made) == count


def test_threads_that_ask_at_once_wait_for_one_compilation(monkeypatch):
    made = []

    def backend(graph, examples):
        made.append(graph)
        time.sleep(0.5)  # a compilation takes long enough for others to ask meanwhile
        return graph.forward

    monkeypatch.setattr(compiling, "_inductor", backend)
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 5))
    oracle = Oracle(model, 16, torch.device("cpu"), compiled=True, lanes=2)
    images = [torch.rand(16, 3, 6, 6) for _ in range(4)]
    with frozen(model), ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(oracle.logits, images))
        slopes = list(threads.map(lambda part: oracle.gradient(part, torch.sum)[1], images))
        assert torch.allclose(torch.cat(answers), oracle.exact(torch.cat(images)), atol=1e-6)
    assert torch.allclose(slopes[0][0].flatten(), model[1].weight.sum(dim=0), atol=1e-6)
    assert len(made) == 2  # one for logits, one for gradients


def test_a_compiled_oracle_searches_like_the_model():
    """With two lanes, so that threads share what was compiled."""
    with seeded("compiled oracle"):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Softplus(), nn.Flatten(), nn.Linear(64, 5))
        images = torch.rand(32, 3, 6, 6)

    def objective(logits):
        return logits.logsumexp(dim=1)

    plain = Oracle(model, 16, torch.device("cpu"))
    quick = Oracle(model, 16, torch.device("cpu"), compiled=True, lanes=2)
    with frozen(model), ThreadPoolExecutor(2) as threads:
        logits = torch.cat(list(threads.map(quick.logits, images.split(16))))
        both = threads.map(lambda part: quick.gradient(part, objective), images.split(16))
        slopes = torch.cat([slope for _, slope in both])
        assert torch.allclose(logits, plain.exact(images), atol=1e-5)
        expected = [plain.gradient(part, objective)[1] for part in images.split(16)]
        assert torch.allclose(slopes, torch.cat(expected), atol=1e-5)
