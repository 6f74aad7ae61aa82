"""robust0 for Python: modules and images in, reports and trained networks out."""

from robust0.api.audits import audit
from robust0.api.comparing import ComparisonReport, compare
from robust0.api.loading import load
from robust0.api.proving import certify
from robust0.api.refusals import EvaluationWarning
from robust0.api.result import AuditReport
from robust0.api.training import HardenResult, harden
from robust0.proofs import Certificate

__all__ = [
    "AuditReport",
    "Certificate",
    "ComparisonReport",
    "EvaluationWarning",
    "HardenResult",
    "audit",
    "certify",
    "compare",
    "harden",
    "load",
]
