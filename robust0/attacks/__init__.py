"""Sparse attacks by name. A new attack is one module here, one line below and its tests."""

from typing import Any, Final

from robust0.attacks.base import Attack
from robust0.attacks.corner_search import CornerSearch
from robust0.attacks.guided_swap import GuidedSwap
from robust0.attacks.saif import SAIF
from robust0.attacks.sigma_zero import SigmaZero
from robust0.attacks.sparse_pgd import SparsePGD
from robust0.attacks.sparse_rs import SparseRS
from robust0.registry import Registry

# In the order in which a battery runs them.
ATTACKS: Final[Registry[Attack[Any]]] = Registry(
    "attack",
    (SparsePGD, SparseRS, CornerSearch, SAIF, SigmaZero, GuidedSwap),
    group="robust0.attacks",
)
