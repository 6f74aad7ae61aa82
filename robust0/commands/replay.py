"""What a replay needs: the new model, and the clean images of the baseline's attempts."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from robust0.auditing.rundata import RECIPE, RunData
from robust0.commands.named_code import require_factory
from robust0.data.imageset import DataOrigin, ImageSet, TensorSet
from robust0.device import resolve_device
from robust0.errors import RunError
from robust0.events import Transfer
from robust0.gate.baseline import Baseline
from robust0.recipes.load import read_dataset
from robust0.runs.images import open_audited, open_images, pick_ids
from robust0.runs.subject import RunSubject, find_model, open_subject

if TYPE_CHECKING:
    from robust0.commands.gate import GateOptions

Progress = Callable[[Transfer], None]


def open_replay(
    options: "GateOptions", baseline: Baseline, run: RunData | None, progress: Progress
) -> RunSubject:
    """The model of a run on the run's own images, or a model that has not been audited yet."""
    wanted = sorted({attempt.image for attempt in baseline.attempts})
    device = resolve_device(options.device)
    if run is None:
        stored = baseline.subject
        data = open_audited(
            stored.dataset, baseline.ids, stored.data_fingerprint, options.data_dir, progress
        )
        model, factory = options.model, options.factory
    else:
        return open_audited_model(run, wanted, options.factory, device, options.data_dir, progress)
    known = set(data.ids.tolist())
    chosen = pick_ids(data, [image for image in wanted if image in known])
    return open_subject(find_model(model, factory), chosen, device, seed=baseline.settings.seed)


def open_audited_model(
    run: RunData,
    wanted: list[int],
    named: str | None,
    device: torch.device,
    data_dir: Path | None,
    progress: Progress,
) -> RunSubject:
    """The very model of a run, on those of its images that are wanted.

    Args:
        run: a finished run.
        wanted: ids of images.
        named: the factory that the command line names.
        device: where to.
        data_dir: where the dataset lies, for a run that keeps only some of its images.
        progress: is told of downloads.
    """
    require_factory(run.folder, run.info.options.get("factory"), named)
    data = _kept(run, wanted) or _recipe_data(run, data_dir, progress)
    model, factory = (_text(run.info.options.get(key)) for key in ("model", "factory"))
    known = set(data.ids.tolist())
    chosen = pick_ids(data, [image for image in wanted if image in known])
    seed = run.info.facts.settings.seed
    subject = open_subject(find_model(model, factory), chosen, device, seed=seed)
    if subject.sha256 != run.report.results.subject.sha256:
        raise RunError(
            f"{model or factory} is no longer the model of the run in {run.folder}",
            "restore the checkpoint, or audit it anew",
        )
    return subject


def _kept(run: RunData, wanted: list[int]) -> ImageSet | None:
    """The images kept with the run, if all that are wanted are among them."""
    clean = run.clean
    if not set(wanted) <= set(clean.ids.tolist()):
        return None
    facts = run.info.facts
    origin = DataOrigin(
        facts.subject.dataset, facts.subject.split, facts.class_names, str(run.folder)
    )
    pixels, labels, ids = (torch.from_numpy(a) for a in (clean.images, clean.labels, clean.ids))
    return TensorSet(origin, pixels, labels, ids)


def _recipe_data(run: RunData, data_dir: Path | None, progress: Progress) -> ImageSet:
    """The dataset of a run that keeps only examples of its images."""
    spec = read_dataset(run.folder / RECIPE)
    whole = open_images(spec, "test", data_dir, progress)
    known = set(whole.ids.tolist())
    data = pick_ids(whole, [image for image in run.images if image in known])
    if data.content_fingerprint != run.report.results.subject.data_fingerprint:
        raise RunError(
            f"{spec.name} no longer holds the images of the run in {run.folder}",
            "give --data-dir with the same data, or audit the model anew",
        )
    return data


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
