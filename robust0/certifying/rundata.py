"""A finished certificate read back from its directory, checked; neither model nor data is needed.

The files: ``report.json`` (:class:`robust0.proofs.CertificateReport`), ``proofs.jsonl`` and
``trials.jsonl`` (a :class:`robust0.proofs.Proof` or :class:`robust0.proofs.Trial` per line),
``bracket.json`` where there is one, ``clean.safetensors`` (the images of the gallery) and
``run.json`` (:class:`robust0.certifying.facts.CertifyRunFile`).
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from robust0.auditing.proof import CLEAN_IMAGES
from robust0.auditing.rundata import CleanImages, damaged, read_clean
from robust0.certifying.facts import CertifyRunFile, read_certify_run
from robust0.certifying.finish import BRACKET, REPORT, write_certificate
from robust0.certifying.store import PROOFS, TRIALS, read_log
from robust0.certifying.summary import summarise_proofs
from robust0.errors import RunError
from robust0.proofs import Bracket, CertificateReport, Proof, Trial


@dataclass(frozen=True)
class CertificateRun:
    """A finished run."""

    folder: Path
    report: CertificateReport
    proofs: tuple[Proof, ...]
    info: CertifyRunFile

    @cached_property
    def clean(self) -> CleanImages:
        """The images of the gallery, read when first asked for."""
        return read_clean(self.folder / CLEAN_IMAGES, self.info.image_shape)


def read_certificate_run(folder: Path) -> CertificateRun:
    """The run of a directory; refuses one that is unfinished, damaged or does not add up."""
    info, report = read_certify_run(folder), read_certificate(folder)
    proofs = tuple(read_log(folder, PROOFS, Proof))
    trials = read_log(folder, TRIALS, Trial)
    expected = summarise_proofs(info.facts, proofs, trials, report.results.bracket)
    if len(proofs) != info.facts.subject.images or expected != report.results:
        raise damaged(folder / REPORT, "its numbers do not follow from the proofs beside it")
    return CertificateRun(folder, report, proofs, info)


def read_certificate(folder: Path) -> CertificateReport:
    """report.json of a certificate's directory."""
    path = folder / REPORT
    if not path.exists():
        raise RunError(
            f"the run in {folder} is not finished: it has no {REPORT}",
            f"go on with robust0 certify --resume {folder}",
        )
    try:
        return CertificateReport.model_validate_json(path.read_bytes())
    except (ValueError, OSError) as problem:
        raise damaged(path, str(problem).splitlines()[0]) from problem


def rebuild_certificate(folder: Path) -> CertificateReport:
    """Fold report.json anew from the proofs of a finished run, and write it."""
    info, times = read_certify_run(folder), read_certificate(folder).run
    bracket = None
    if (folder / BRACKET).exists():
        bracket = Bracket.model_validate_json((folder / BRACKET).read_bytes())
    proofs, trials = read_log(folder, PROOFS, Proof), read_log(folder, TRIALS, Trial)
    report = CertificateReport(
        results=summarise_proofs(info.facts, proofs, trials, bracket), run=times
    )
    write_certificate(folder, report)
    return report
