"""A planned network with its published weights, fitted by timm and checked by us."""

import torch
from safetensors.torch import load as load_tensors
from torch import Tensor, nn

from robust0 import rng
from robust0.errors import ModelError
from robust0.models.adapt import AdaptationPlan
from robust0.models.build import NetworkSpec, build, create
from robust0.models.checkpoint import check_finite
from robust0.models.header import one_line, parse_header, read_bytes
from robust0.models.normalize import Normalized
from robust0.models.sources import Source


def realize(plan: AdaptationPlan, *, seed: int = 0) -> Normalized:
    """The planned network on the CPU: fresh weights from ``seed``, or the pretrained ones.

    With pretrained weights, the network is one that its description alone rebuilds exactly: the
    weights timm fitted are moved into a freshly built network whose answers must be the same.
    """
    model = build(plan.spec, seed=seed)
    if plan.source is None:
        return model
    fitted = _fitted(plan.spec, plan.source, seed)
    _check_loaded(model.network, fitted, plan.source)
    try:
        model.network.load_state_dict(fitted.state_dict(), strict=True)
    except RuntimeError as error:
        raise _unfaithful(plan.source) from error
    images = torch.full((2, *plan.spec.input_size), 0.5)
    with torch.no_grad():
        ours = model.eval().network(images)
        theirs = fitted.eval()(images)
    model.train()
    if not torch.allclose(ours, theirs, rtol=0.0, atol=0.0, equal_nan=True):
        raise _unfaithful(plan.source)
    return model


def _fitted(spec: NetworkSpec, source: Source, seed: int) -> nn.Module:
    """The bare network into which timm has loaded what it can fit."""
    path = source.weights()
    data = read_bytes(path)
    parse_header(data, path)
    tensors = load_tensors(data)
    check_finite(tensors, str(path), "do not use these weights")
    overlay = {**source.config, "state_dict": tensors, "custom_load": False}
    try:
        # The seed of build(): a tensor that is the same afterwards was not loaded.
        with rng.seeded("weights", seed):
            return create(spec, pretrained=True, pretrained_cfg_overlay=overlay)
    except ModelError as error:
        raise ModelError(
            f"the weights of {source.name} do not fit this network: {one_line(error.__cause__)}",
            "keep the pretrained patch size and stem (model arguments), or resize the images",
        ) from error


def _check_loaded(fresh: nn.Module, fitted: nn.Module, source: Source) -> None:
    """Refuse weights of which timm quietly took little: random tensors but for the classifier."""
    before: dict[str, Tensor] = dict(fresh.named_parameters())
    classifier = _classifier_names(fitted)
    missing = [
        name
        for name, weight in fitted.named_parameters()
        if not name.startswith(classifier)
        and weight.ndim > 1
        and bool((weight != weight.flatten()[0]).any())
        and torch.equal(weight, before[name])
    ]
    if missing:
        raise ModelError(
            f"the weights of {source.name} lack {len(missing)} tensors, first {missing[0]!r}",
            "check that they belong to this architecture",
        )


def _classifier_names(network: nn.Module) -> tuple[str, ...]:
    config = getattr(network, "pretrained_cfg", {})
    names = config.get("classifier") or ()
    return tuple(f"{name}." for name in ([names] if isinstance(names, str) else names))


def _unfaithful(source: Source) -> ModelError:
    return ModelError(
        f"{source.name} cannot be rebuilt from its name and arguments alone",
        "a checkpoint of it would not load; choose other weights",
    )
