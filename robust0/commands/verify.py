"""From a card to the audit that checks it: same weights, same images, same attacks and seed."""

import datetime
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from robust0.attacks import ATTACKS
from robust0.auditing.facts import RunFile, write_run
from robust0.auditing.job import AuditJob
from robust0.auditing.rundata import RECIPE
from robust0.commands.build_audit import AuditRequest, build_audit
from robust0.data.datasets import Variant, in_cache, open_dataset
from robust0.data.imageset import ImageSet
from robust0.errors import DataError, ZooError
from robust0.events import Transfer
from robust0.files import write_text
from robust0.gate.baseline import Baseline
from robust0.gate.claims import SAMPLE, chosen
from robust0.models.checkpoint import read_metadata
from robust0.recipes.load import Resolved, dump_recipe, load_recipe, recipe_hash, recipe_of
from robust0.recipes.schema import AttackSpec
from robust0.runs.subject import Named, load_model
from robust0.zoo.cards import Card

_EMBEDDED = "sample"  # the first images of cifar10's test set


def open_verification(
    card: Card,
    stored: Baseline,
    weights: Path,
    folder: Path,
    *,
    full: bool,
    device: torch.device,
    data_dir: Path | None,
    progress: Callable[[Transfer], None],
) -> AuditJob:
    """The job that attacks some or all of a card's images again, in an empty folder."""
    _check_revisions(stored)
    data = _images(card, stored, data_dir, progress)
    if not full:
        place = {image: row for row, image in enumerate(data.ids.tolist())}
        wanted = chosen(sorted(place), SAMPLE)
        data = data.subset(torch.tensor([place[image] for image in wanted], dtype=torch.int64))
    job, resolved = _job(card, stored, weights, data.to(device), device)
    job = replace(job, folder=folder)
    _write(folder, job, resolved)
    return job


def _check_revisions(stored: Baseline) -> None:
    for attack in stored.attacks:
        kind = ATTACKS.members().get(attack.kind)
        now = None if kind is None else kind.revision
        if now != attack.revision:
            raise ZooError(
                f"the card was measured with revision {attack.revision} of {attack.kind}, this "
                f"robust0 has {now or 'none'}",
                f"verify it with robust0 {stored.robust0}, or audit the model anew",
            )


def _images(
    card: Card, stored: Baseline, data_dir: Path | None, progress: Callable[[Transfer], None]
) -> ImageSet:
    """The images of the card's audit, all of them and no others."""
    name, subject = card.audit.dataset, stored.subject
    names = [name]
    if name == "cifar10" and data_dir is None and not in_cache(name):
        names.insert(0, _EMBEDDED)  # enough for audits of the first 1,000 images
    for candidate in names:
        variant: Variant = "paper" if card.variant == "paper" else "official"
        data = open_dataset(
            candidate, "test", data_dir=data_dir, progress=progress,
            variant="official" if candidate == _EMBEDDED else variant,
        )  # fmt: skip
        place = {image: row for row, image in enumerate(data.ids.tolist())}
        rows = [place[image] for image in stored.ids if image in place]
        same = data.subset(torch.tensor(rows, dtype=torch.int64))
        if same.fingerprint == subject.data_fingerprint:
            return same
    raise DataError(
        f"{name} does not hold the images of the card's audit",
        "give --data-dir with the same data",
    )


def _job(
    card: Card, stored: Baseline, weights: Path, data: ImageSet, device: torch.device
) -> tuple[AuditJob, Resolved]:
    known = read_metadata(weights)
    if known.spec().arch != card.architecture:
        raise ZooError(
            f"the weights are a {known.spec().arch}, the card says {card.architecture}",
            "do not use this model: the card is wrong",
        )
    settings = stored.settings
    named = Named(card.id, weights, metadata=known)
    subject = load_model(named, data, seed=settings.seed)
    network = subject.network.to(device)
    if device.type != "mps":
        network = network.to(memory_format=torch.channels_last)
    resolved = audit_recipe(card, stored)
    request = AuditRequest(
        network=network,
        data=data,
        budgets=settings.budgets,
        device=device,
        model=card.id,
        arch=card.architecture,
        sha256=subject.sha256,
        method=card.method,
        identity=subject.identity(),
        mean=subject.mean,
        std=subject.std,
        class_names=known.class_names,
        thorough=stored.thorough,
        rows=settings.compute_rows,
        precision="bf16" if settings.search_dtype == "bfloat16" else "fp32",
        compile=settings.compiled,
        threads=card.audit.threads,
    )
    return build_audit(resolved, request), resolved


def audit_recipe(card: Card, stored: Baseline) -> Resolved:
    """A recipe whose audit is the card's, attack by attack and setting by setting."""
    settings, data = stored.settings, stored.subject.dataset
    values = {
        "dataset.name": data,
        "dataset.image_size": None,
        f"threat.{settings.unit}s": settings.budgets[0],
        "audit.mode": settings.mode,
        "audit.effort": settings.effort,
        "audit.seed": settings.seed,
    }
    texts = [f"{key}={json.dumps(value)}" for key, value in values.items()]
    # Its own dataset's: what suits one dataset, another may forbid.
    recipe = load_recipe(recipe_of(data), model=card.architecture, overrides=texts).recipe
    attacks = tuple(
        AttackSpec(name=attack.name, kind=attack.kind, params=dict(attack.params))
        for attack in stored.attacks
    )
    audit = recipe.audit.model_copy(update={"attacks": attacks})
    recipe = recipe.model_copy(update={"audit": audit})
    return Resolved(recipe, recipe_hash(recipe), {})


def _write(folder: Path, job: AuditJob, resolved: Resolved) -> None:
    """What the engine expects to find where it writes its verdicts."""
    write_text(folder / RECIPE, dump_recipe(resolved.recipe))
    run = RunFile(
        identity=job.identity,
        options={"budgets": list(job.facts.settings.budgets)},
        image_shape=job.data.image_shape,
        facts=job.facts,
        started=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        command=("robust0", "zoo", "verify", job.facts.subject.model),
        processes=1,
    )
    write_run(folder, run)
