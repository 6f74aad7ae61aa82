"""What an attacker may do to an image. ``Threat.of(20, "pixel")`` finds a threat by its unit."""

from robust0.threats.base import UNITS, Threat
from robust0.threats.sparse import (
    ColumnThreat,
    FeatureThreat,
    PatchThreat,
    PixelThreat,
    RowThreat,
    SparseThreat,
)

__all__ = [
    "UNITS",
    "ColumnThreat",
    "FeatureThreat",
    "PatchThreat",
    "PixelThreat",
    "RowThreat",
    "SparseThreat",
    "Threat",
]
