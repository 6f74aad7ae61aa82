"""robust0 for Python: modules and images in, reports and trained networks out."""

from robust0.api.audits import audit
from robust0.api.loading import load
from robust0.api.proving import certify
from robust0.api.refusals import EvaluationWarning
from robust0.api.result import AuditReport
from robust0.api.training import HardenResult, harden

__all__ = [
    "AuditReport",
    "EvaluationWarning",
    "HardenResult",
    "audit",
    "certify",
    "harden",
    "load",
]
