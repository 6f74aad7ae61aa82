"""robust0: harden, audit and certify image classifiers against sparse (l0) attacks.

Nothing here imports torch until it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robust0.api import (
        AuditReport,
        Certificate,
        ComparisonReport,
        EvaluationWarning,
        HardenResult,
        audit,
        certify,
        compare,
        harden,
        load,
    )

__version__ = "0.1.0"
__all__ = [
    "AuditReport",
    "Certificate",
    "ComparisonReport",
    "EvaluationWarning",
    "HardenResult",
    "__version__",
    "audit",
    "certify",
    "compare",
    "harden",
    "load",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'robust0' has no attribute {name!r}")
    from robust0 import api

    value: object = getattr(api, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
