"""An audit beside a study: its row of numbers, and the perturbations of its strongest attack."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robust0.auditing.attempts import Attempts
from robust0.auditing.rundata import RunData
from robust0.errors import RunError, ZooError
from robust0.records import BudgetResult, Report
from robust0.runs.subject import ModelReference
from robust0.study.perturb import Perturber, StudyImages
from robust0.threats import Threat
from robust0.zoo import fetch


@dataclass(frozen=True)
class StoredAttempts:
    """What an attack of an audit left behind; images it did not meet stay as they are."""

    label: str
    threat: Threat
    name: str
    attempts: Attempts

    def __repr__(self) -> str:
        return f"StoredAttempts({self.name}, {self.threat}, {len(self.attempts.found)})"

    def passes(self, data: StudyImages, classes: int) -> int:  # noqa: ARG002
        """Nothing is asked any more."""
        return 0

    def __call__(self, network: nn.Module, data: StudyImages) -> Tensor:  # noqa: ARG002
        """The perturbed images of the audit."""
        result = data.images.clone()
        for row, image in enumerate(data.ids.tolist()):
            key = (self.threat.budget, self.name, image)
            if key in self.attempts.found:
                clean = data.images[row].cpu().numpy()
                result[row] = torch.from_numpy(self.attempts.paint(key, clean)).to(result)
        return result


def check_audit_of(run: RunData, model: ModelReference, sha256: str | None) -> None:
    """Refuse an audit of another model."""
    audited = run.report.results.subject
    if audited.sha256 != sha256 or sha256 is None:
        raise RunError(
            f"the audit in {run.folder} is of {audited.model}, not of {model.shown}",
            "give an audit of this very checkpoint",
        )


def strongest(run: RunData) -> Perturber:
    """The attack that left the fewest images standing at the largest budget."""
    result = _largest(run.report)
    rows = [row for row in result.attacks if row.robust is not None]
    if not rows:
        raise RunError(
            f"the audit in {run.folder} is a cascade: no attack met all images",
            "audit with --mode battery",
        )
    best = min(rows, key=lambda row: row.robust.count if row.robust is not None else 0)
    threat = Threat.of(result.budget, result.unit)
    return StoredAttempts(f"{best.name} of the audit, {threat}", threat, best.name, run.attempts)


def audit_row(run: RunData | None, model: str) -> dict[str, object] | None:
    """Robust accuracies of an audit: of the given run, or of a zoo model's own report."""
    report = _published(model) if run is None else run.report
    if report is None:
        return None
    result = _largest(report)
    settings = report.results.settings
    return {
        "effort": settings.effort,
        "images": report.results.subject.images,
        "budget": f"{result.budget} {result.unit}s",
        "clean": report.results.clean.share,
        **{row.name: row.robust.share for row in result.ensembles},
    }


def _published(model: str) -> Report | None:
    """The report behind a zoo model's card; None for everything else."""
    try:
        found = fetch.find_card(model, refresh=False)
    except ZooError:
        return None
    path = fetch.drive(fetch.attachment(found, "report"))
    try:
        return Report.model_validate_json(path.read_bytes())
    except ValueError:
        return None


def _largest(report: Report) -> BudgetResult:
    if not report.results.budgets:
        raise RunError("the audit attacked nothing", "audit with --eps")
    return report.results.budgets[0]
