"""The copies that searches ask: the same function as the model, which stays as it was."""

import pytest
import torch
from torch import nn

from robust0.auditing.guards import threads_per_call
from robust0.data.datasets import open_dataset
from robust0.models.checkpoint import load_checkpoint
from robust0.models.fast.oracle import Oracle, frozen
from robust0.models.fast.searching import StillBatchNorm2d, gains, search_copies
from robust0.resources import shipped
from robust0.rng import seeded

CPU = torch.device("cpu")
RELEASED = shipped("model_zoo") / "cifar10-w8-e4-fast-ls-l0.safetensors"


def network(*, affine=True):
    with seeded("searching"):
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, affine=affine), nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8, eps=0.1), nn.Softplus(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 5),
        )  # fmt: skip
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.1, 3.0)
                if module.affine:
                    nn.init.normal_(module.weight)
                    nn.init.normal_(module.bias)
        images = torch.rand(16, 3, 17, 17)  # enough positions to be narrow
    return model.eval(), images


def gradient(model, images):
    asked = images.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(asked).logsumexp(dim=1).sum(), asked)
    return slope


@pytest.mark.parametrize("affine", [True, False])
def test_a_copy_is_the_same_function(affine):
    model, images = network(affine=affine)
    twin = search_copies(model, 1)[0]
    assert [type(module) for module in twin.modules()].count(StillBatchNorm2d) == 2
    assert torch.allclose(twin(images), model(images), atol=1e-5)
    assert torch.allclose(gradient(twin, images), gradient(model, images), atol=1e-5)


def test_the_model_stays_as_it_was():
    model, images = network()
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    twin = search_copies(model, 1)[0]
    twin(images)
    assert not any(isinstance(module, StillBatchNorm2d) for module in model.modules())
    assert all(module.training for module in model.modules())
    assert all(weight.requires_grad for weight in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert twin.state_dict().keys() == before.keys()


def test_a_layer_that_is_switched_to_training_normalises_by_its_batch():
    model, images = network()
    twin = search_copies(model, 1)[0]
    model[1].train()
    twin[1].train()
    assert torch.allclose(twin(images), model(images), atol=1e-5)


def test_what_is_not_plain_batch_normalisation_with_statistics_stays():
    class Own(nn.BatchNorm2d):
        def forward(self, x):
            return super().forward(x) + 1

    model = nn.Sequential(Own(3), nn.BatchNorm2d(3, track_running_stats=False))
    assert not gains(model)
    assert [type(module) for module in search_copies(model, 1)[0]] == [Own, nn.BatchNorm2d]


def test_a_layer_used_twice_is_settled_once_for_both():
    norm = nn.BatchNorm2d(3)
    norm.running_mean.fill_(0.5)
    model = nn.Sequential(norm, nn.ReLU(), norm).eval()
    twin, images = search_copies(model, 1)[0], torch.rand(2, 3, 4, 4)
    assert twin[0] is twin[2]
    assert torch.allclose(twin(images), model(images), atol=1e-6)


def test_narrow_operands_leave_fine_logits():
    """Autocast alone gives logits of eight bits: neighbouring images cannot be told apart."""
    model, images = network()
    steps = images[:1] + torch.linspace(0, 1e-2, 16).view(-1, 1, 1, 1)
    with frozen(model), torch.autocast("cpu", dtype=torch.bfloat16):
        coarse, fine = model(steps), search_copies(model, 1, torch.bfloat16)[0](steps)
    assert (coarse.dtype, fine.dtype) == (torch.bfloat16, torch.float32)
    assert len(fine[:, 0].unique()) == 16 > len(coarse[:, 0].unique())


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize(
    ("layer", "shape", "narrow"),
    [
        (nn.Conv2d(4, 4, 1), (4, 1, 257), "always"),
        (nn.Conv2d(4, 4, 3), (4, 16, 16), "for gradients"),
        (nn.Conv2d(4, 4, 3, groups=4), (4, 17, 17), "never"),
        (nn.Conv2d(4, 4, 1), (4, 1, 1), "never"),
        (nn.Linear(4, 4), (257, 4), "always"),
        (nn.Linear(4, 4), (16, 16, 4), "for gradients"),
        (nn.Linear(4, 4), (4,), "never"),
    ],
)
def test_where_operands_are_narrow(layer, shape, narrow, gradient):
    images = torch.rand(2, *shape)
    with frozen(layer), torch.set_grad_enabled(gradient):
        answer, exact = search_copies(layer, 1, torch.bfloat16)[0](images), layer(images)
    rounded = narrow == "always" or (narrow == "for gradients" and gradient)
    assert torch.equal(answer, exact) != rounded
    assert torch.allclose(answer, exact, atol=0.05)


def test_a_narrow_search_is_near_and_verdicts_are_exact():
    model, images = network()
    oracle = Oracle(model, 16, CPU, search_dtype=torch.bfloat16)
    with frozen(model), torch.no_grad():
        expected = model(images)
        for near in (oracle.logits(images), oracle.gradient(images, torch.sum)[0]):
            assert not torch.allclose(near, expected, atol=1e-5)
            assert torch.allclose(near, expected, atol=0.1)
        assert torch.allclose(oracle.exact(images), expected, atol=1e-6)


def test_logits_of_a_narrow_search_show_what_one_pixel_does():
    """A search over pixels compares such logits; those of its gradient calls are too coarse."""
    model = load_checkpoint(RELEASED).network
    images = open_dataset("sample", "test").images(torch.arange(16))
    changed = images.clone()
    changed[:, :, 5, 7] = 1 - changed[:, :, 5, 7].round()
    oracle = Oracle(model, 16, CPU, search_dtype=torch.bfloat16)

    def effect(ask):
        moved = ask(changed) - ask(images)
        return moved - moved.mean(dim=1, keepdim=True)

    with frozen(model):
        true = effect(oracle.exact)
        fine = effect(oracle.logits)
        coarse = effect(lambda part: oracle.gradient(part, torch.sum)[0])
    error = [float((seen - true).norm() / true.norm()) for seen in (fine, coarse)]
    assert error[0] < 0.25
    assert error[1] > 0.5


def test_a_row_of_a_narrow_search_does_not_depend_on_its_place():
    """Else the order of images would change verdicts."""
    model, images = network()
    oracle = Oracle(model, 16, CPU, search_dtype=torch.bfloat16)
    order = torch.arange(len(images)).flip(0)
    with frozen(model), threads_per_call(1):
        assert torch.equal(oracle.logits(images)[order], oracle.logits(images[order]))
        there, back = (
            oracle.gradient(part, lambda logits: logits.logsumexp(dim=1))[1]
            for part in (images, images[order])
        )
    assert torch.equal(there[order], back)


def test_one_lane_and_several_ask_the_same_function():
    """Else the number of cores would change verdicts."""
    model, images = network()
    with frozen(model):
        answers = [Oracle(model, 16, CPU, lanes=lanes).logits(images) for lanes in (1, 2, 3)]
    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[0], answers[2])
