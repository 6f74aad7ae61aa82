"""What an audit can run: attacks by configured name, groups of them, and how long they search."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from robust0.attacks import ATTACKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from robust0.attacks.base import Attack, AttackName, Value

EFFORTS: Final = ("smoke", "quick", "standard", "paper")
CONVERGED: Final = "converged"  # rounds that double what the first one, as at FIRST_ROUND, spends
FIRST_ROUND: Final = "quick"
SAA: Final = ("sparse-pgd-p", "sparse-pgd-u", "sparse-rs")  # Sparse-AutoAttack, in its order


def battery() -> dict[str, tuple[type[Attack[Any]], AttackName]]:
    """Every configured name, with the attack it belongs to and what the name itself says."""
    return {
        named.name: (attack, named)
        for attack in ATTACKS.members().values()
        for named in attack.configured
    }


def groups() -> Mapping[str, tuple[str, ...]]:
    """Names for several attacks; a user's own attack runs only where it is named itself."""
    own = [named for kind in ATTACKS.own for named in ATTACKS[kind].configured]
    cascade = sorted(own, key=lambda named: named.rank)
    return {
        "all": tuple(named.name for named in own),
        "saa": SAA,
        # Cheapest kills first: in a cascade the later attacks see few images.
        "worst-case": tuple(named.name for named in cascade),
    }


def budget_of(attack: type[Attack[Any]], effort: str) -> Mapping[str, Value]:
    """The settings that an effort gives an attack; its own defaults where it names none."""
    return attack.efforts.get(FIRST_ROUND if effort == CONVERGED else effort, {})


def doubled(attack: Attack[Any], times: int) -> Attack[Any]:
    """The attack with its budget doubled this often; one without a budget stays as it is."""
    counts = {key: getattr(attack, key) for key in budget_of(type(attack), CONVERGED)}
    longer = {key: value * 2**times for key, value in counts.items() if isinstance(value, int)}
    return replace(attack, **longer)  # type: ignore[type-var] # attacks are dataclasses


def budget_keys() -> frozenset[str]:
    """Settings that say how long some attack searches."""
    tables = (attack.efforts.values() for attack in ATTACKS.members().values())
    return frozenset(key for table in tables for budgets in table for key in budgets)
