"""Hardening for Python: a module and images in, the module trained in place."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import nn

from robust0.api.inputs import answering, device_of, open_given
from robust0.api.refusals import in_python, warn_of
from robust0.api.scratch import ScratchFolder
from robust0.commands.build_training import TrainRequest, build_training
from robust0.distributed import World
from robust0.errors import ModelError, RunError
from robust0.events import TrainEvent, TrainFinished
from robust0.files import write_text
from robust0.recipes.load import dump_recipe, load_recipe
from robust0.records import Flag
from robust0.runs.folder import owned, read_lines
from robust0.runs.network import TrainableNetwork
from robust0.training.loop import run_training
from robust0.views.python import python_view


@dataclass(frozen=True, eq=False)
class HardenResult:
    """What :func:`robust0.harden` did: the module is the caller's own, with its new weights."""

    module: nn.Module
    history: tuple[dict[str, Any], ...]  # accuracies on images kept out, before and by epoch
    overfitting: str | None  # why the run counts as overfitted, if it does
    folder: Path | None  # the run directory, where one was asked for
    _place: object = field(default=None, repr=False)

    def __repr__(self) -> str:
        epochs = self.history[-1]["epoch"] if self.history else 0
        lines = [f"HardenResult: {type(self.module).__name__}, {epochs} epochs"]
        lines += [
            f"epoch {epoch['epoch']}, {epoch['images']} images kept out: clean "
            f"{epoch['clean']:.1%}, {epoch['probe_name']} {epoch['probe']:.1%}"
            for epoch in self.history[-1:]
        ]
        lines += [f"! catastrophic overfitting: {self.overfitting}"] if self.overfitting else []
        return "\n  ".join(lines)


def harden(
    module: nn.Module,
    images: Any,  # noqa: ANN401 - a tensor, an array, a DataLoader or a dataset
    labels: Any = None,  # noqa: ANN401
    *,
    eps: int = 20,
    unit: Literal["pixel", "feature"] = "pixel",
    training_eps: int | None = None,
    method: str = "fast-ls-l0",
    epochs: int = 10,
    batch_size: int = 128,
    lr: float = 0.01,
    flip: bool = True,
    seed: int = 0,
    settings: Mapping[str, object] | None = None,
    folder: str | Path | None = None,
    progress: bool | Callable[[TrainEvent], None] | None = None,
) -> HardenResult:
    """Train a module against sparse attacks, in place, on the device it is on.

    A tenth of the images, at most 1,000, is never trained on: after each epoch an independent
    attack tries the network on some of them. Catastrophic overfitting is raised as a warning.

    Args:
        module: takes images (B, C, H, W) in [0, 1], returns logits.
        images: (N, C, H, W) or (N, H, W), floats in [0, 1] or uint8; or, with the labels in it, a
            DataLoader, a dataset or a pair.
        labels: (N,) class numbers.
        eps: how many pixels an attacker may change, for which the network is to be robust.
        unit: whether eps counts pixels or single values of one.
        training_eps: the budget of the training attack; by default 6 times eps, as in the paper.
        method: ``fast-ls-l0``, ``sparse-at``, ``strades-t+s`` and so on.
        epochs: passes over the images.
        batch_size: images per step.
        lr: the highest learning rate of a warm-up and a linear decay; 0.01 suits a network that is
            trained already, 0.1 a fresh one.
        flip: mirror images at random; not for images whose left and right matter.
        seed: of order, noise and attack.
        settings: any other value of a recipe by its key, such as ``training.inner.steps``.
        folder: keep checkpoints and metrics there.
        progress: True shows it, False does not, None where somebody can watch; or told every event.
    """
    with in_python():
        device = device_of(module)
        if next(module.parameters(), None) is None:
            raise ModelError("the module has no weights to train", "give a network with parameters")
        data, notes = open_given(images, labels, device)
        network, taken = answering(module, data)
        channels, height, width = data.image_shape
        sites = height * width * (channels if unit == "feature" else 1)
        changes: dict[str, object] = {
            "dataset.name": data.name,
            "dataset.image_size": None,
            f"threat.{unit}s": eps,
            f"training.threat.{unit}s": training_eps or min(6 * eps, sites),
            "training.method": method,
            "training.epochs": epochs,
            "training.batch_size": min(batch_size, len(data)),
            "training.optimizer.lr": lr,
            "training.augment.flip": flip,
            "training.seed": seed,
            **(settings or {}),
        }
        resolved = load_recipe("quick", changes=changes)
        place = ScratchFolder() if folder is None else None
        target = place.path if place is not None else Path(folder or "")
        if (target / "recipe.yaml").exists():
            raise RunError(f"{target} already holds a run", "choose a new folder")
        given = TrainableNetwork(network, None, type(module).__name__, (), "given weights")
        request = TrainRequest(
            folder=target, device=device, images=data, network=given, factory=given.name
        )
        was = module.training
        job = build_training(resolved, request)
        with owned(target), python_view(progress, training=True) as show:
            write_text(target / "recipe.yaml", dump_recipe(resolved.recipe))
            kept: dict[str, object] = {"command": [], "factory": given.name, "data_dir": None}
            write_text(target / "options.json", json.dumps(kept) + "\n")
            end: TrainFinished | None = None
            for event in run_training(job, World(), resume=False):
                show(event)
                end = event if isinstance(event, TrainFinished) else end
        module.train(was)
        if end is None or end.interrupted is not None:
            raise KeyboardInterrupt
        lines = read_lines(target / "metrics.jsonl")
    history = tuple(line for line in lines if line["event"] == "epoch")
    alarm = end.overfitting
    flags = [Flag(name="overfitting", fatal=True, message=alarm)] if alarm else []
    warn_of(flags, [*notes, *taken])
    return HardenResult(module, history, alarm, None if folder is None else target, place)
