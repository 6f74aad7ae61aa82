"""From a model, images and an audit's settings to a CertifyJob.

The attacks that try the certificates, and those of the bracket, are an audit's: the job is built
around one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from robust0.auditing.job import AuditJob
from robust0.certifying.classifiers import Certifier, Sampling, certifier_of
from robust0.certifying.facts import CertifyFacts
from robust0.certifying.job import CertifyJob
from robust0.certifying.trying import ATTACKS
from robust0.commands.build_audit import AuditRequest, build_audit
from robust0.errors import RecipeError
from robust0.models.voting import Certifiable
from robust0.proofs import CertifySettings, Detail
from robust0.recipes.load import read_audit, settings_hash
from robust0.runs.subject import RunSubject
from robust0.wording import tidy
from robust0.writers.certificate import write_certificate_reports

REVISION = 1  # of the proofs: raised when an answer or a radius can change
_ROWS = {"partition-vote": 64, "masks": 4, "ablation": 1}  # images between two signs of life


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifyRequest:
    """What to certify, for how many pixels, and how hard to try the certificates."""

    subject: RunSubject  # its images are those of the certificate
    pixels: Sequence[int]
    sampling: Sampling = field(default_factory=Sampling)
    tried: int = 16
    every_rule: bool = True  # or only certificates of the model's own rule are tried
    effort: str = "smoke"
    attack: bool = False  # the same classifier at these numbers of pixels, for the bracket
    seed: int = 0
    choice: str = "as given"  # how the images were chosen
    batch_size: int | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def build_certify(request: CertifyRequest) -> CertifyJob:
    """The job; refuses what cannot be certified, before anything is written."""
    subject, pixels = request.subject, tuple(sorted(set(request.pixels)))
    network, data = subject.network, subject.data
    certifier = certifier_of(network, data.image_shape, pixels, request.sampling, subject.model)
    if not isinstance(network, Certifiable):
        raise TypeError("a certifier was made for something else")
    if request.batch_size is not None and request.batch_size < 1:
        raise RecipeError(f"--batch-size must be at least 1, got {request.batch_size}", "try 64")
    if request.tried < 0:
        raise RecipeError(f"--try must not be negative, got {request.tried}", "0 tries nothing")
    audit = _attacks(request, pixels)
    tried = request.tried if certifier.deterministic else 0
    names = certifier.names if request.every_rule else certifier.names[:1]
    settings = CertifySettings(
        kind=certifier.kind,
        headline=certifier.names[0],
        classifiers=certifier.names,
        pixels=pixels,
        details=certifier.details(),
        expected_false=certifier.expected_false(len(data)),
        tried=tried,
        effort=request.effort,
        seed=request.seed,
        device=subject.device.type,
        torch=torch.__version__,
    )
    facts = CertifyFacts(
        subject=audit.facts.subject, settings=settings, class_names=audit.facts.class_names
    )
    return CertifyJob(
        title=_title(facts),
        folder=None,
        network=network,
        certifier=certifier,
        data=data,
        device=subject.device,
        rows=request.batch_size or _ROWS[certifier.kind],
        threads=audit.threads,
        lanes=audit.oracle.lanes,
        attack_rows=audit.oracle.batch_size,
        trying=audit.attacks,
        tried=names if tried else (),
        facts=facts,
        identity=_identity(facts, audit, names, attack=request.attack),
        write_reports=write_certificate_reports,
        audit=audit if request.attack else None,
        about=_about(facts, certifier),
        notes=(*subject.notes, *request.notes),
        warnings=request.warnings,
    )


def attack_settings(request: CertifyRequest) -> dict[str, Any]:
    """The audit block that the attacks come from."""
    return {
        "mode": "battery", "effort": request.effort, "attacks": list(ATTACKS),
        "seed": request.seed, "images": len(request.subject.data),
    }  # fmt: skip


def _attacks(request: CertifyRequest, pixels: tuple[int, ...]) -> AuditJob:
    spec = read_audit(attack_settings(request))
    return build_audit(
        AuditRequest(
            subject=request.subject,
            audit=spec,
            unit="pixel",
            budgets=pixels,
            choice=request.choice,
            recipe=settings_hash({"unit": "pixel", "audit": spec.model_dump(mode="json")}),
        )
    )


def _identity(
    facts: CertifyFacts, audit: AuditJob, tried: tuple[str, ...], *, attack: bool
) -> dict[str, Detail]:
    settings = facts.settings
    return {
        "model": str(audit.identity["model"]),
        "certificate": f"{settings.kind} revision {REVISION}",
        "classifiers": ", ".join(settings.classifiers),
        "details": json.dumps(settings.details, sort_keys=True),
        "pixels": ", ".join(str(pixels) for pixels in settings.pixels),
        "data fingerprint": facts.subject.data_fingerprint,
        "image ids": facts.subject.image_ids,
        "certificates tried": f"{settings.tried} of {', '.join(tried)}",
        "effort": settings.effort,
        "seed": settings.seed,
        "attacks of the same classifier": attack,
        "images per call of the attacks": audit.oracle.batch_size,
        "device": settings.device,
        "torch": settings.torch,
    }


def _title(facts: CertifyFacts) -> str:
    subject = facts.subject
    return (
        f"{tidy(subject.model)} · {tidy(subject.dataset)} {tidy(subject.split)}, "
        f"{subject.images:,} images"
    )


def _about(facts: CertifyFacts, certifier: Certifier) -> tuple[tuple[str, str], ...]:
    details = ", ".join(f"{key} {value}" for key, value in certifier.details().items())
    rows = [
        ("model", facts.subject.model),
        ("certificate", certifier.kind),
        ("headline", facts.settings.headline),
        ("rests on", details),
    ]
    return tuple((name, tidy(value)) for name, value in rows)
