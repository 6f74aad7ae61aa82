"""The audit block of a recipe, spelled out: names, groups and an effort become attacks."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields

from robust0.attacks import ATTACKS
from robust0.attacks.battery import CONVERGED, EFFORTS, battery, budget_of, groups
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

RESERVED = frozenset({"clean", "saa", "worst-case", "all"})  # numbers and groups of their own


def attack_names(words: Sequence[str], asked: Origin = DEFAULT) -> tuple[str, ...]:
    """The configured names that names and groups stand for, each once, in order."""
    names: dict[str, None] = {}
    for word in words:
        if ":" in word:  # a user's own attack, by its place
            own = ATTACKS.find(word, asked.says(""))
            names.update(dict.fromkeys(named.name for named in own.configured))
            continue
        if word not in battery() and word not in groups():
            known = (*groups(), *battery())
            close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
            raise RecipeError(
                asked.says(f"there is no attack or group named {word!r}"),
                f"did you mean {' or '.join(close)}?" if close else f"one of {', '.join(known)}",
            )
        names.update(dict.fromkeys(groups().get(word, (word,))))
    return tuple(names)


def expand_audit(audit: Branch) -> Branch:
    """The audit block with every attack spelled out as name, kind and params.

    Parameters come, each over the one before, from the effort, from the attack's name, from
    ``audit.params`` (by attack name) and from the attack's own entry.
    """
    effort = plain(audit.get("effort", Leaf("paper", DEFAULT)))
    if not isinstance(effort, str) or effort not in (*EFFORTS, CONVERGED):
        raise RecipeError(
            origin_of(audit["effort"]).says(f"there is no audit effort {effort!r}"),
            f"one of {', '.join((*EFFORTS, CONVERGED))}",
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


def changed_settings(effort: str, name: str, kind: str, params: Mapping[str, object]) -> list[str]:
    """Settings of an attack that are not those which the effort and its name give it.

    Of an attack under a name of its own only those count that the effort decides.
    """
    attack = ATTACKS.find(kind)
    given: dict[str, object] = {**budget_of(attack, effort)}
    owner, known = battery().get(name, (None, None))
    if known is not None and owner is attack:
        parts = fields(attack)  # type: ignore[arg-type] # attacks are dataclasses
        given = {**{part.name: part.default for part in parts}, **given, **known.params}
    return [
        f"{name}.{key}={value} ({effort}: {given[key]})"
        for key, value in params.items()
        if key in given and value != given[key]
    ]


def _entries(attacks: Tree) -> list[Branch]:
    """One branch with a name and a kind per attack, from names, groups and spelled-out attacks."""
    if isinstance(attacks, Leaf):
        words = attacks.value if isinstance(attacks.value, list) else [attacks.value]
        attacks = [Leaf(word, attacks.origin) for word in words]
    if not isinstance(attacks, list) or not attacks:
        raise RecipeError(
            origin_of(attacks).says("audit.attacks must be a list of attacks"),
            f"name attacks or groups: {', '.join((*groups(), *battery()))}",
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
            {"name": Leaf(name, origin), "kind": Leaf(_kind(name), origin)} for name in names
        )
    return entries


def _spelled(entry: Branch) -> Branch:
    """A spelled-out attack; the kind of a known name need not be given."""
    name, kind = value_at(entry, "name"), value_at(entry, "kind")
    place = origin_of(entry)
    if not isinstance(name, str) or not name:
        raise RecipeError(place.says("an attack has no name"), "add a name: it labels its verdicts")
    if kind is None and name in battery():
        return {**entry, "kind": Leaf(_kind(name), origin_of(entry))}
    if not isinstance(kind, str):
        raise RecipeError(
            place.says(f"the attack {name!r} has the kind {kind!r}"), f"one of {', '.join(ATTACKS)}"
        )
    ATTACKS.find(kind, place.says(f"the attack {name!r} has the kind {kind!r}: "))
    return entry


def _kind(name: str) -> str:
    """What a recipe calls the attack of a configured name: its kind, or where a user keeps it."""
    attack, _ = battery()[name]
    own = attack.kind in ATTACKS.own or attack.kind in ATTACKS.installed
    return attack.kind if own else f"{attack.__module__}:{attack.__qualname__}"


def _check_names(names: Sequence[str], tuning: Branch) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RecipeError(
            f"audit.attacks has two attacks named {twice!r}", "give each attack a name of its own"
        )
    taken = next((name for name in names if name in RESERVED), None)
    if taken is not None:
        raise RecipeError(
            f"an attack cannot be named {taken!r}: reports use that name for another number",
            "give the attack a name of its own",
        )
    known = {*names, *battery()}
    for name, params in tuning.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
            raise RecipeError(
                origin_of(params).says(f"audit.params names the unknown attack {name!r}"),
                f"did you mean {' or '.join(close)}?" if close else f"one of {', '.join(known)}",
            )


def _complete(entry: Branch, effort: str, tuning: Branch) -> Branch:
    name, kind = str(value_at(entry, "name")), str(value_at(entry, "kind"))
    attack = ATTACKS.find(kind)
    params = branch(grow(budget_of(attack, effort), Origin(f"effort {effort}")), ())
    owner, known = battery().get(name, (None, None))
    if known is not None and owner is attack:
        params = merge(params, branch(grow(dict(known.params), Origin(f"attack {name}")), ()))
    own = branch(entry.get("params"), ("audit", "attacks", name, "params"))
    return {**entry, "params": {**merge(merge(params, tuning), own)}}
