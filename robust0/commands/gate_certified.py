"""``robust0 gate`` on a certificate: floors, paired drops and baselines of certified accuracies."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from robust0.certifying.facts import is_certificate
from robust0.certifying.rundata import CertificateRun, read_certificate_run
from robust0.commands.audit_recipe import require_said
from robust0.decision import Check, Decision
from robust0.gate.certified import (
    CertificateBaseline,
    certified_decision,
    certified_drops,
    certified_floors,
    of_certificate,
    read_certificate_baseline,
    require_comparable_certificates,
    write_certificate_baseline,
)
from robust0.gate.decide import Policy
from robust0.gate.metrics import Floor, Metric
from robust0.runs.folder import run_folder


def judge_certificate(
    folder: Path,
    baseline: Path | None,
    metrics: Sequence[Metric],
    floors: Sequence[Floor],
    allowed: Fraction,
    policy: Policy,
) -> Decision:
    """Decide; what cannot be compared or read is refused, never passed."""
    run = _read(folder)
    after = of_certificate(run)
    checks = list[Check]()
    if baseline is not None:
        before = _baseline(baseline)
        require_comparable_certificates(before, after)
        checks += certified_drops(before, after, metrics, allowed, policy)
    results = run.report.results
    return certified_decision(results, [*checks, *certified_floors(results, floors)])


def write_certified(path: Path, folder: Path) -> tuple[Path, CertificateBaseline]:
    """Write the baseline of a certificate."""
    made = of_certificate(_read(folder))
    write_certificate_baseline(path, made)
    return path, made


def _baseline(path: Path) -> CertificateBaseline:
    """A baseline.json, or a certificate's run directory, which says as much."""
    folder = run_folder(path)
    if folder.is_dir() and is_certificate(folder):
        return of_certificate(_read(folder))
    return read_certificate_baseline(path)


def _read(folder: Path) -> CertificateRun:
    run = read_certificate_run(folder)
    said = run.info.options.get("says_data") is True
    require_said(budget=True, data=said, whose="this certificate")
    return run
