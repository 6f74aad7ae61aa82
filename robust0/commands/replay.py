"""What a replay needs: the new model, and the clean images of the baseline's attempts."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robust0.auditing.rundata import RECIPE, RunData
from robust0.data.datasets import open_dataset
from robust0.data.imageset import ImageSet, Origin, TensorSet
from robust0.device import resolve
from robust0.errors import DataError, RunError
from robust0.events import Transfer
from robust0.gate.baseline import Baseline
from robust0.recipes.load import load_recipe
from robust0.runs.subject import Subjected, find_model, load_model

if TYPE_CHECKING:
    from robust0.commands.gate import GateOptions

Progress = Callable[[Transfer], None]


@dataclass(frozen=True, slots=True)
class ReplaySubject:
    """A network and images on one device."""

    network: nn.Module
    images: Tensor  # (N, C, H, W) in [0, 1]
    labels: Tensor
    ids: Tensor


def open_subject(
    options: "GateOptions", baseline: Baseline, run: RunData | None, progress: Progress
) -> ReplaySubject:
    """The model of a run on the run's own images, or a model that has not been audited yet."""
    wanted = sorted({attempt.image for attempt in baseline.attempts})
    device = resolve(options.device)
    if run is None:
        data = _named_data(baseline, options.data_dir, progress)
        subject = _load(options.model, options.factory, data, baseline.settings.seed)
    else:
        data = _kept(run, wanted) or _recipe_data(run, options.data_dir, progress)
        model, factory = (_text(run.info.options.get(key)) for key in ("model", "factory"))
        subject = _load(model, factory, data, baseline.settings.seed)
        if subject.sha256 != run.report.results.subject.sha256:
            raise RunError(
                f"{model or factory} is no longer the model of the run in {run.folder}",
                "restore the checkpoint, or audit it anew",
            )
    place = {image: row for row, image in enumerate(data.ids.tolist())}
    rows = torch.tensor([place[image] for image in wanted if image in place], dtype=torch.int64)
    chosen = data.subset(rows)
    images = chosen.images(torch.arange(len(chosen))).to(device)
    return ReplaySubject(
        subject.network.to(device), images, chosen.labels.to(device), chosen.ids.to(device)
    )


def _load(model: str | None, factory: str | None, data: ImageSet, seed: int) -> Subjected:
    return load_model(find_model(model, factory), data, seed=seed)


def _kept(run: RunData, wanted: list[int]) -> ImageSet | None:
    """The images kept with the run, if all that are wanted are among them."""
    clean = run.clean
    if not set(wanted) <= set(clean.ids.tolist()):
        return None
    facts = run.info.facts
    origin = Origin(facts.subject.dataset, facts.subject.split, facts.class_names, str(run.folder))
    pixels, labels, ids = (torch.from_numpy(a) for a in (clean.images, clean.labels, clean.ids))
    return TensorSet(origin, pixels, labels, ids)


def _recipe_data(run: RunData, data_dir: Path | None, progress: Progress) -> ImageSet:
    """The dataset of a run that keeps only examples of its images."""
    spec = load_recipe(str(run.folder / RECIPE)).recipe.dataset
    return open_dataset(
        spec.name, "test", data_dir=data_dir, variant=spec.variant, image_size=spec.image_size,
        class_list=spec.classes, progress=progress,
    )  # fmt: skip


def _named_data(baseline: Baseline, data_dir: Path | None, progress: Progress) -> ImageSet:
    """The dataset a baseline names, if it holds the same images."""
    data = open_dataset(baseline.subject.dataset, "test", data_dir=data_dir, progress=progress)
    place = {image: row for row, image in enumerate(data.ids.tolist())}
    rows = [place[image] for image in baseline.ids if image in place]
    same = data.subset(torch.tensor(rows, dtype=torch.int64))
    if same.fingerprint != baseline.subject.data_fingerprint:
        raise DataError(
            f"{baseline.subject.dataset} does not hold the images of the baseline",
            "give --data-dir with the baseline's data, or audit the model and gate its run",
        )
    return same


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
