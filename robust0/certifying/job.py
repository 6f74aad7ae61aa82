"""Everything a certificate needs, as one frozen object; built by robust0.commands.build_certify."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from robust0.attacks.base import Attack
from robust0.auditing.job import AuditJob
from robust0.certifying.classifiers import Certifier
from robust0.certifying.facts import CertifyFacts
from robust0.data.imageset import ImageSet
from robust0.models.voting import Certifiable
from robust0.proofs import Detail


@dataclass(frozen=True, slots=True)
class CertifyJob:
    """A certificate; ``identity`` is what a resumed run must have in common with the first."""

    title: str
    folder: Path | None  # None: nothing is written
    network: Certifiable
    certifier: Certifier
    data: ImageSet  # on the device
    device: torch.device
    rows: int  # images per step; no answer depends on it
    threads: int
    lanes: int  # model calls at once
    attack_rows: int  # images per model call, of the attacks
    trying: tuple[tuple[str, Attack[Any]], ...]  # attacks on the certificates
    tried: tuple[str, ...]  # the classifiers whose certificates they try
    facts: CertifyFacts
    identity: dict[str, Detail]
    write_reports: Callable[[Path], object]
    audit: AuditJob | None = None  # attacks the same classifier for the bracket
    audit_run: Path | None = None  # or: a finished audit of it
    about: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """What tells this classifier's weights, views and rule from others."""
        return str(self.identity["model"])
