"""The certificate of a card: published from a run, and proved again from the card."""

from collections.abc import Callable
from pathlib import Path

import torch

from robust0.auditing.guards import searching
from robust0.auditing.plan import evenly
from robust0.certifying.classifiers import Sampling
from robust0.certifying.job import CertifyJob
from robust0.certifying.rundata import CertificateRun, read_certificate_run
from robust0.commands.build_certify import CertifyRequest, build_certify
from robust0.errors import ZooError
from robust0.events import Transfer
from robust0.gate.certified import CertificateBaseline, of_certificate, of_proofs
from robust0.gate.claims import SAMPLE
from robust0.models.checkpoint import read_metadata
from robust0.proofs import Proof
from robust0.runs.images import open_audited, pick_ids
from robust0.runs.subject import ModelReference, open_subject
from robust0.zoo.cards import Card


def read_publishable(folder: Path, digest: str, weights: Path) -> CertificateRun:
    """A certificate of these weights; refuses one of others, or one that an attack has broken."""
    run = read_certificate_run(folder)
    if run.report.results.subject.sha256 != digest:
        raise ZooError(
            f"the certificate in {folder} is not about {weights}", f"run robust0 certify {weights}"
        )
    return run


def published_radii(run: CertificateRun, name: str) -> CertificateBaseline:
    """The radii with the model called by its id; no folder of the machine is named."""
    made = of_certificate(run)
    return made.model_copy(update={"subject": made.subject.model_copy(update={"model": name})})


def open_proof(
    card: Card,
    stored: CertificateBaseline,
    weights: Path,
    *,
    full: bool,
    device: torch.device,
    data_dir: Path | None,
    progress: Callable[[Transfer], None],
) -> CertifyJob:
    """The job that certifies some or all of a card's images again, in memory."""
    data = open_audited(
        stored.subject.dataset, stored.ids, stored.subject.data_fingerprint, data_dir, progress,
        variant="paper" if card.variant == "paper" else "official",
    )  # fmt: skip
    if not full:
        data = pick_ids(data, evenly(sorted(data.ids.tolist()), SAMPLE))
    reference = ModelReference(card.id, weights, metadata=read_metadata(weights))
    settings, known = stored.settings, stored.settings.details
    sampling = Sampling()
    if settings.kind == "ablation":
        sampling = Sampling(
            choose=int(known["choose"] or 0), bound=int(known["bound"] or 0),
            alpha=float(known["alpha"] or 0),
            condition="gap" if known["condition"] == "gap" else "half",
        )  # fmt: skip
    request = CertifyRequest(
        subject=open_subject(reference, data, device, seed=settings.seed),
        pixels=settings.pixels,
        sampling=sampling,
        tried=0,
        seed=settings.seed,
        choice=f"of those of the card {card.id}",
    )
    return build_certify(request)


def prove_again(job: CertifyJob) -> CertificateBaseline:
    """The radii of a second certificate; nothing is written."""
    proofs, data = list[Proof](), job.data
    with searching(job.network, job.threads), torch.no_grad():
        for index in torch.arange(len(data)).split(job.rows):
            ids, labels = (values[index.to(data.device)] for values in (data.ids, data.labels))
            answers = job.certifier.prove(data.images(index), ids)
            columns = zip(ids.tolist(), labels.tolist(), answers, strict=True)
            proofs += [Proof(image=i, label=label, answers=each) for i, label, each in columns]
    return of_proofs(job.facts.subject, job.facts.settings, proofs)
