"""Sparse attacks by name. A new attack is one module here, one line below and its tests."""

from typing import Any, Final

from robust0.attacks.base import Attack
from robust0.attacks.corner_search import CornerSearch
from robust0.attacks.guided_swap import GuidedSwap
from robust0.attacks.saif import SAIF
from robust0.attacks.sigma_zero import SigmaZero
from robust0.attacks.sparse_pgd import SparsePGD
from robust0.attacks.sparse_rs import SparseRS

ATTACKS: Final[dict[str, type[Attack[Any]]]] = {
    "sparse-pgd": SparsePGD,
    "sparse-rs": SparseRS,
    "corner-search": CornerSearch,
    "saif": SAIF,
    "sigma-zero": SigmaZero,
    "guided-swap": GuidedSwap,
}
