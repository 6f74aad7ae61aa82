import pytest
import torch
from torch import nn

from robust0.auditing.given import given_images
from robust0.auditing.preflight import check_model
from robust0.errors import DataError, EvaluationError, ModelError

CPU = torch.device("cpu")


class Returns(nn.Module):
    """A network whose answer is made into something else."""

    def __init__(self, change):
        super().__init__()
        self.head, self.change = nn.Linear(2 * 3 * 3, 4), change

    def forward(self, images):
        return self.change(self.head(images.flatten(1)))


class Scribbles(Returns):
    """A network that writes into its input."""

    def forward(self, images):
        logits = self.head(images.flatten(1))
        self.change(images)
        return logits


def data(count=3, top=3):
    images = torch.rand(count, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    return given_images(images, torch.arange(count) % (top + 1), CPU)


def test_the_class_count_is_the_models():
    model = Returns(lambda logits: logits).train()
    assert check_model(model, data(), 16, CPU) == 4
    assert model.training


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda logits: (logits, logits), "returns a tuple, expected a tensor"),
        (lambda logits: {"logits": logits}, "returns a dict"),
        (lambda logits: logits.sum(dim=1), r"shape \(16,\)"),
        (lambda logits: logits[:, :1], r"shape \(16, 1\)"),
        (lambda logits: logits[:-1], r"shape \(15, 4\)"),
        (lambda logits: logits @ torch.zeros(7, 7), "fails on 2x3x3 images: RuntimeError"),
    ],
)
def test_other_answers_are_refused(change, message):
    with pytest.raises(ModelError, match=message):
        check_model(Returns(change), data(), 16, CPU)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_nan_and_inf_fail_the_evaluation(value):
    with pytest.raises(EvaluationError, match="NaN or Inf") as caught:
        check_model(Returns(lambda logits: logits * value), data(), 16, CPU)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_are_refused(dtype):
    with pytest.raises(ModelError, match="expected float32") as caught:
        check_model(Returns(lambda logits: logits).to(dtype), data(), 16, CPU)
    assert "float()" in caught.value.hint


def test_a_model_on_another_device_is_refused():
    with pytest.raises(ModelError, match="is on meta"):
        check_model(Returns(lambda logits: logits).to("meta"), data(), 16, CPU)


def test_labels_beyond_the_models_classes_are_refused():
    with pytest.raises(ModelError, match=r"4 classes, .* labels up to 5"):
        check_model(Returns(lambda logits: logits), data(6, top=5), 16, CPU)


def test_a_model_for_other_images_is_refused():
    with pytest.raises(ModelError, match="fails on 2x3x3 images"):
        check_model(nn.Conv2d(3, 4, 3), data(), 16, CPU)


def leave(logits):
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Returns(lambda logits: logits.nothing), "fails on 2x3x3 images: AttributeError"),
        (Returns(leave), "fails on 2x3x3 images: SystemExit: 0"),
        (Returns(lambda logits: logits.to(torch.complex64)), "returns complex logits"),
        (Scribbles(lambda images: images.mul_(2)), "changes its input in place"),
        (Scribbles(lambda images: images.data.mul_(2)), "changes its input in place"),
    ],
)
def test_misconduct_fails_the_evaluation(model, message):
    with pytest.raises(EvaluationError, match=message) as caught:
        check_model(model, data(), 16, CPU)
    assert caught.value.exit_code == 3


def test_no_images(toy):
    with pytest.raises(DataError, match="no images"):
        check_model(toy.network, data().subset(torch.arange(0)), 16, CPU)
