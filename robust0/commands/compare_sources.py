"""What an argument of ``robust0 compare`` means: a run, a baseline, or a model of the zoo."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robust0 import upgrades
from robust0.auditing.facts import RUN
from robust0.auditing.rundata import RunData, read_run
from robust0.certifying.facts import is_certificate
from robust0.certifying.rundata import CertificateRun, read_certificate_run
from robust0.commands.gate import refuse_violations
from robust0.comparing.sides import AuditSide, CertificateSide, Side
from robust0.errors import RunError, ZooError
from robust0.events import Transfer
from robust0.files import at_home, read_regular
from robust0.gate import baseline as baselines
from robust0.gate import certified
from robust0.gate.baseline import Baseline
from robust0.gate.certified import CertificateBaseline, of_certificate, read_certificate_baseline
from robust0.gate.certified_claims import certificate_papers
from robust0.gate.claims import papers
from robust0.records import Report
from robust0.runs.folder import run_folder
from robust0.wording import class_names, shell, tidy
from robust0.zoo.cards import is_id
from robust0.zoo.documents import read_json
from robust0.zoo.fetch import Found, attachment, drive, find_card
from robust0.zoo.local import SUFFIX, weights_of

Progress = Callable[[Transfer], None]
_KINDS = "a run directory of audit or certify, a baseline.json, or an id from robust0 zoo list"
_MODELS = ("hf-hub:", "local-dir:")


@dataclass(frozen=True)
class ZooSide:
    """A model of the zoo: its card has an audit, and perhaps a certificate."""

    source: str
    found: Found

    @property
    def certified(self) -> bool:
        """Whether the card has a certificate."""
        return self.found.card.certificate is not None


def find_side(source: str) -> Side | ZooSide:
    """What a word means; refuses models that nobody has audited, and files that tell too little."""
    path = run_folder(at_home(source))
    if path.is_dir():
        return _folder(source, path)
    if path.exists():
        return _file(source, path)
    if source.startswith(_MODELS):
        raise _unaudited(source)
    if not is_id(source) or source.endswith((SUFFIX, ".json")):
        raise RunError(f"there is no {tidy(source)!r}", f"give {_KINDS}")
    return ZooSide(source, find_card(source, refresh=False))


def of_audit(source: str, run: RunData) -> AuditSide:
    """An audit that has been read; refuses one whose numbers may not be used."""
    if not run.report.results.subject.images:
        raise RunError(f"{source} audited no images", "audit some images")
    refuse_violations(run)
    return AuditSide(source, baselines.of_run(run), run.report.results, run)


def of_proved(source: str, run: CertificateRun) -> CertificateSide:
    """A certificate that has been read."""
    return CertificateSide(source, of_certificate(run), run.report.results, run)


def audited_card(side: ZooSide, progress: Progress) -> AuditSide:
    """The audit of a card; refuses papers that contradict each other."""
    report = _report(side, progress)
    path = drive(attachment(side.found, "verdicts"), progress)
    stored = read_json(path, Baseline, upgrades.baseline)
    _agreeing(side, papers(side.found.card, report, stored))
    return AuditSide(side.source, stored, report.results)


def proved_card(side: ZooSide, progress: Progress) -> CertificateSide:
    """The certificate of a card."""
    claim = side.found.card.certificate
    if claim is None:
        raise RunError(
            f"{side.source} has no certificate, and the others are certificates",
            "compare audits with audits and certificates with certificates",
        )
    path = drive(attachment(side.found, "radii"), progress)
    stored = read_json(path, CertificateBaseline, lambda document: document)
    _agreeing(side, certificate_papers(side.found.card, claim, stored))
    names = class_names(_report(side, progress).results)  # its audit's: the same classes
    return CertificateSide(side.source, stored, names=names)


def _report(side: ZooSide, progress: Progress) -> Report:
    return read_json(drive(attachment(side.found, "report"), progress), Report, upgrades.report)


def _agreeing(side: ZooSide, problems: list[str]) -> None:
    if problems:
        raise ZooError(
            f"the card of {side.source} contradicts its files: {problems[0]}",
            f"see robust0 zoo verify {side.source}",
        )


def _folder(source: str, folder: Path) -> Side:
    if is_certificate(folder):
        return of_proved(source, read_certificate_run(folder))
    if (folder / RUN).exists() or (folder / "verdicts.jsonl").exists():
        return of_audit(source, read_run(folder))
    if weights_of(source) is not None:
        raise _unaudited(source)
    raise RunError(f"{tidy(source)} holds neither an audit nor a certificate", f"give {_KINDS}")


def _file(source: str, path: Path) -> Side:
    if path.suffix == SUFFIX:
        raise _unaudited(source)
    document = _document(path)
    kind = document.get("kind")
    if kind == certified.KIND:
        return CertificateSide(source, read_certificate_baseline(path))
    if (kind is None and "results" in document) or kind == "robust0-certificate":
        raise RunError(
            f"{tidy(source)} is a report without its run: nothing in it says which images survived",
            "give the run directory, or its baseline: robust0 gate RUN --write-baseline FILE",
        )
    return AuditSide(source, baselines.read(path))


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_regular(path, baselines.MAX_BYTES))
    except (OSError, ValueError, RecursionError) as problem:
        raise RunError(f"{path} cannot be read: {problem}", f"give {_KINDS}") from problem
    if not isinstance(document, dict):
        raise RunError(f"{path} is nothing that compares", f"give {_KINDS}")
    return document


def _unaudited(source: str) -> RunError:
    name = f"{Path(source.rpartition(':')[2]).stem}-audit"
    return RunError(
        f"{tidy(source)} is a model, and nothing here says how robust it is",
        f"audit it, then compare the audit: {shell('audit', source, '-o', name)}",
    )
