"""The end of a run: the report folded, the pictures of extremes kept; and rebuilt from files."""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import TYPE_CHECKING

from robust0.auditing.finish import now, run_info, write_clean
from robust0.auditing.rundata import read_run
from robust0.auditing.store import read_clock
from robust0.certifying import store
from robust0.certifying.bracket import bracket_of, check_matching
from robust0.certifying.facts import CertifyFacts, read_certify_run
from robust0.certifying.summary import summarise_proofs
from robust0.files import write_text
from robust0.lazy import torch
from robust0.proofs import Bracket, CertificateReport, Proof, Trial
from robust0.runs.folder import append_line, writing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from robust0.certifying.job import CertifyJob

REPORT = "report.json"
BRACKET = "bracket.json"
AUDIT = "audit"  # the folder of a run's own attacks
EXTREMES = 12  # images of each end kept for the gallery


class Clock:
    """Seconds of the parts of a run, over resumptions; in memory where nothing is written."""

    def __init__(self, folder: Path | None, *, writes: bool) -> None:
        self.folder, self.writes = folder, writes
        self.seconds: dict[str, float] = {}

    def spent(self, part: str, seconds: float) -> None:
        """Add to the clock of a part, and of the whole."""
        for name in (part, ""):
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            if self.folder is not None and self.writes:
                record = {"attack": name, "seconds": round(seconds, 3)}
                append_line(self.folder / "clock.jsonl", record)

    def read(self) -> tuple[float, dict[str, float]]:
        """The whole, and its parts."""
        if self.folder is not None:
            return read_clock(self.folder)
        parts = dict(self.seconds)
        return parts.pop("", 0.0), parts


def conclude(
    job: CertifyJob, proofs: Sequence[Proof], trials: Sequence[Trial], clock: Clock, processes: int
) -> CertificateReport:
    """The report of a finished run, and all of its files."""
    from robust0.models.metadata import versions  # brings torch, which readers of runs do without

    bracket = _bracket(job, proofs)
    results = summarise_proofs(job.facts, proofs, trials, bracket)
    if job.folder is None:
        info = run_info(now(), (), clock.read(), processes, versions())
        return CertificateReport(results=results, run=info)
    start = read_certify_run(job.folder)
    info = run_info(start.started, start.command, clock.read(), processes, versions())
    report = CertificateReport(results=results, run=info)
    _keep_extremes(job, proofs, job.folder)
    with writing(job.folder, "certify"):
        if bracket is not None:
            write_text(job.folder / BRACKET, bracket.model_dump_json(indent=1) + "\n")
        write_certificate(job.folder, report)
    store.drop_proof_parts(job.folder)
    job.write_reports(job.folder)
    return report


def certificate_text(report: CertificateReport) -> str:
    """report.json in canonical form: sorted keys, so that equal results are equal bytes."""
    document = report.model_dump(mode="json", by_alias=True)
    return json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n"


def write_certificate(folder: Path, report: CertificateReport) -> None:
    """Write report.json, whole or not at all."""
    write_text(folder / REPORT, certificate_text(report))


def extremes(
    facts: CertifyFacts, proofs: Sequence[Proof], most: int = EXTREMES
) -> tuple[list[int], list[int]]:
    """Right answers of the headline with the largest and the smallest radii, classes in turn."""
    name = facts.settings.headline
    right = [proof for proof in proofs if proof.answers[name].certified(proof.label, 0)]
    strongest = _in_turn(sorted(right, key=lambda p: (-p.answers[name].radius, p.image)))
    weakest = _in_turn(sorted(right, key=lambda p: (p.answers[name].radius, p.image)))
    return strongest[:most], [image for image in weakest if image not in strongest[:most]][:most]


def _in_turn(proofs: Sequence[Proof]) -> list[int]:
    by_class: dict[int, list[int]] = {}
    for proof in proofs:
        by_class.setdefault(proof.label, []).append(proof.image)
    turns = zip_longest(*(by_class[label] for label in sorted(by_class)))
    return [image for turn in turns for image in turn if image is not None]


def _keep_extremes(job: CertifyJob, proofs: Sequence[Proof], folder: Path) -> None:
    strongest, weakest = extremes(job.facts, proofs)
    kept = sorted({*strongest, *weakest})
    place = {image: row for row, image in enumerate(job.data.ids.tolist())}
    index = torch.tensor([place[image] for image in kept], dtype=torch.int64)
    pixels = (job.data.images(index) * 255).round().to(torch.uint8).cpu().numpy()
    labels = job.data.labels[index.to(job.data.device)].tolist()
    with writing(folder, "certify"):
        write_clean(folder, kept, labels, pixels)


def _bracket(job: CertifyJob, proofs: Sequence[Proof]) -> Bracket | None:
    folder = job.audit_run
    if job.audit is not None:
        folder = job.audit.folder
    if folder is None:
        return None
    run = read_run(folder)
    check_matching(job.facts, job.model, run.info, str(folder))
    return bracket_of(job.facts, proofs, run)
