"""From a card to the audit that checks it: same weights, same images, same attacks and seed."""

import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from robust0.attacks import ATTACKS
from robust0.auditing.facts import RunFile, write_run
from robust0.auditing.job import AuditJob
from robust0.auditing.plan import evenly
from robust0.auditing.rundata import RECIPE
from robust0.commands.build_audit import AuditRequest, build_audit
from robust0.data.imageset import ImageSet
from robust0.errors import ZooError
from robust0.events import Transfer
from robust0.files import write_text
from robust0.gate.baseline import Baseline
from robust0.gate.claims import SAMPLE
from robust0.models.checkpoint import read_metadata
from robust0.recipes.load import settings_hash
from robust0.recipes.schema import AttackSpec, AuditSpec
from robust0.recipes.yaml_source import dump
from robust0.runs.images import open_audited, pick_ids
from robust0.runs.subject import ModelReference, open_subject
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
    data = open_audited(
        card.audit.dataset, stored.ids, stored.subject.data_fingerprint, data_dir, progress,
        variant="paper" if card.variant == "paper" else "official",
    )  # fmt: skip
    if not full:
        data = pick_ids(data, evenly(sorted(data.ids.tolist()), SAMPLE))
    job = replace(_job(card, stored, weights, data, device), folder=folder)
    _write(folder, job, audit_spec(stored))
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


def _job(
    card: Card, stored: Baseline, weights: Path, data: ImageSet, device: torch.device
) -> AuditJob:
    known = read_metadata(weights)
    if known.spec().arch != card.architecture:
        raise ZooError(
            f"the weights are a {known.spec().arch}, the card says {card.architecture}",
            "do not use this model: the card is wrong",
        )
    settings, audit = stored.settings, audit_spec(stored)
    reference = ModelReference(card.id, weights, metadata=known)
    subject = open_subject(reference, data, device, seed=settings.seed)
    request = AuditRequest(
        subject=replace(subject, method=card.method),
        audit=audit,
        unit=settings.unit,
        budgets=settings.budgets,
        choice=f"of those of the card {card.id}",
        recipe=settings_hash({"audit": audit.model_dump(mode="json")}),
        thorough=stored.thorough,
        batch_size=settings.batch_size,
        precision="bf16" if settings.search_dtype == "bfloat16" else "fp32",
        compile=settings.compiled,
        threads=card.audit.threads,
    )
    return build_audit(request)


def audit_spec(stored: Baseline) -> AuditSpec:
    """The card's audit, attack by attack and setting by setting."""
    settings = stored.settings
    attacks = tuple(
        AttackSpec(name=attack.name, kind=attack.kind, params=dict(attack.params))
        for attack in stored.attacks
    )
    known = {"mode": settings.mode, "effort": settings.effort, "seed": settings.seed}
    if settings.tolerance is not None and settings.max_passes is not None:
        known |= {"tolerance": settings.tolerance, "max_passes": settings.max_passes}
    return AuditSpec.model_validate({**known, "images": len(stored.ids), "attacks": attacks})


def _write(folder: Path, job: AuditJob, audit: AuditSpec) -> None:
    """What the engine expects to find where it writes its verdicts."""
    write_text(folder / RECIPE, dump({"audit": audit.model_dump(mode="json")}))
    run = RunFile(
        chained=True,
        identity=job.identity,
        options={"budgets": list(job.facts.settings.budgets)},
        image_shape=job.data.image_shape,
        facts=job.facts,
        started=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        command=("robust0", "zoo", "verify", job.facts.subject.model),
        processes=1,
    )
    write_run(folder, run)
