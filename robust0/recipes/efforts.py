"""What an audit runs by default: attacks by configured name, groups of them, budgets per effort."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from robust0.errors import RecipeError
from robust0.recipes.tree import (
    DEFAULT,
    Branch,
    Leaf,
    Origin,
    Tree,
    branch,
    grow,
    merge,
    origin_of,
    plain,
    value_at,
)

Params = Mapping[str, int | float | str | bool | None]

EFFORTS: Final[Mapping[str, Mapping[str, Params]]] = {
    "smoke": {
        "sparse-pgd": {"steps": 10},
        "sparse-rs": {"queries": 50},
        "corner-search": {"forwards": 50},
        "saif": {"steps": 10},
        "sigma-zero": {"steps": 10},
        "guided-swap": {"forwards": 40},
    },
    "quick": {
        "sparse-pgd": {"steps": 100},
        "sparse-rs": {"queries": 1_000},
        "corner-search": {"forwards": 1_000},
        "saif": {"steps": 100},
        "sigma-zero": {"steps": 100},
        "guided-swap": {"forwards": 400},
    },
    "standard": {
        "sparse-pgd": {"steps": 300},
        "sparse-rs": {"queries": 3_000},
        "corner-search": {"forwards": 3_000},
        "saif": {"steps": 300},
        "sigma-zero": {"steps": 300},
        "guided-swap": {"forwards": 1_200},
    },
    "paper": {
        "sparse-pgd": {"steps": 10_000},
        "sparse-rs": {"queries": 10_000},
        "corner-search": {"forwards": None, "iterations": 1_000, "mode": "sweep"},
        "saif": {"steps": 10_000},
        "sigma-zero": {"steps": 10_000},
        "guided-swap": {"forwards": 20_000},
    },
}
KINDS: Final = tuple(EFFORTS["paper"])
BUDGET_KEYS: Final = frozenset(
    key for row in EFFORTS.values() for params in row.values() for key in params
)


@dataclass(frozen=True, slots=True)
class NamedAttack:
    """A configured attack: the name that records carry, its kind, and what the name itself says."""

    name: str
    kind: str
    params: tuple[tuple[str, bool], ...] = ()


BATTERY: Final[Mapping[str, NamedAttack]] = {
    attack.name: attack
    for attack in (
        NamedAttack("sparse-pgd-p", "sparse-pgd", (("projected", True),)),
        NamedAttack("sparse-pgd-u", "sparse-pgd", (("projected", False),)),
        NamedAttack("sparse-rs", "sparse-rs"),
        NamedAttack("corner-search", "corner-search"),
        NamedAttack("saif", "saif"),
        NamedAttack("sigma-zero", "sigma-zero"),
        NamedAttack("guided-swap", "guided-swap"),
    )
}
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "all": tuple(BATTERY),
    # The paper's Sparse-AutoAttack, in its order.
    "saa": ("sparse-pgd-p", "sparse-pgd-u", "sparse-rs"),
    # Cheapest kills first: in a cascade the later attacks see few images.
    "worst-case": (
        "guided-swap",
        "sparse-rs",
        "sparse-pgd-u",
        "sparse-pgd-p",
        "sigma-zero",
        "saif",
        "corner-search",
    ),
}


def attack_names(words: Sequence[str], asked: Origin = DEFAULT) -> tuple[str, ...]:
    """The configured names that names and groups stand for, each once, in order."""
    names: dict[str, None] = {}
    for word in words:
        if word not in BATTERY and word not in GROUPS:
            known = (*GROUPS, *BATTERY)
            close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
            raise RecipeError(
                asked.says(f"there is no attack or group named {word!r}"),
                f"did you mean {' or '.join(close)}?" if close else f"one of {', '.join(known)}",
            )
        names.update(dict.fromkeys(GROUPS.get(word, (word,))))
    return tuple(names)


def expand_audit(audit: Branch) -> Branch:
    """The audit block with every attack spelled out as name, kind and params.

    Parameters come, each over the one before, from the effort, from the attack's name, from
    ``audit.params`` (by attack name) and from the attack's own entry.
    """
    effort = plain(audit.get("effort", Leaf("paper", DEFAULT)))
    if not isinstance(effort, str) or effort not in EFFORTS:
        raise RecipeError(
            origin_of(audit["effort"]).says(f"there is no audit effort {effort!r}"),
            f"one of {', '.join(EFFORTS)}",
        )
    tuning = branch(audit.get("params"), ("audit", "params"))
    entries = _entries(audit.get("attacks", Leaf(["all"], DEFAULT)))
    names = [str(value_at(entry, "name")) for entry in entries]
    _check_names(names, tuning)
    attacks: list[Tree] = [
        _complete(entry, effort, branch(tuning.get(name), ("audit", "params", name)))
        for name, entry in zip(names, entries, strict=True)
    ]
    rest = {key: item for key, item in audit.items() if key not in {"params", "attacks"}}
    return {**rest, "attacks": attacks}


def _entries(attacks: Tree) -> list[Branch]:
    """One branch with a name and a kind per attack, from names, groups and spelled-out attacks."""
    if isinstance(attacks, Leaf):
        words = attacks.value if isinstance(attacks.value, list) else [attacks.value]
        attacks = [Leaf(word, attacks.origin) for word in words]
    if not isinstance(attacks, list) or not attacks:
        raise RecipeError(
            origin_of(attacks).says("audit.attacks must be a list of attacks"),
            f"name attacks or groups: {', '.join((*GROUPS, *BATTERY))}",
        )
    entries: list[Branch] = []
    named: set[str] = set()
    for item in attacks:
        if isinstance(item, dict):
            entries.append(_spelled(item))
            continue
        origin = origin_of(item)
        names = [name for name in attack_names([str(plain(item))], origin) if name not in named]
        named.update(names)
        entries.extend(
            {"name": Leaf(name, origin), "kind": Leaf(BATTERY[name].kind, origin)} for name in names
        )
    return entries


def _spelled(entry: Branch) -> Branch:
    """A spelled-out attack; the kind of a known name need not be given."""
    name, kind = value_at(entry, "name"), value_at(entry, "kind")
    place = origin_of(entry)
    if not isinstance(name, str) or not name:
        raise RecipeError(place.says("an attack has no name"), "add a name: it labels its verdicts")
    if kind is None and name in BATTERY:
        return {**entry, "kind": Leaf(BATTERY[name].kind, origin_of(entry))}
    if kind not in KINDS:
        raise RecipeError(
            place.says(f"the attack {name!r} has the kind {kind!r}"), f"one of {', '.join(KINDS)}"
        )
    return entry


def _check_names(names: Sequence[str], tuning: Branch) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RecipeError(
            f"audit.attacks has two attacks named {twice!r}", "give each attack a name of its own"
        )
    known = {*names, *BATTERY}
    for name, params in tuning.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
            raise RecipeError(
                origin_of(params).says(f"audit.params names the unknown attack {name!r}"),
                f"did you mean {' or '.join(close)}?" if close else f"one of {', '.join(known)}",
            )


def _complete(entry: Branch, effort: str, tuning: Branch) -> Branch:
    name, kind = str(value_at(entry, "name")), str(value_at(entry, "kind"))
    params = branch(grow(EFFORTS[effort][kind], Origin(f"effort {effort}")), ())
    known = BATTERY.get(name)
    if known is not None and known.kind == kind:
        params = merge(params, branch(grow(dict(known.params), Origin(f"attack {name}")), ()))
    own = branch(entry.get("params"), ("audit", "attacks", name, "params"))
    return {**entry, "params": {**merge(merge(params, tuning), own)}}
