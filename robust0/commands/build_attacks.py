"""From the attacks of a resolved recipe to attacks, and to what a run records about them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from robust0.attacks import ATTACKS
from robust0.attacks.base import Attack
from robust0.attacks.battery import battery
from robust0.auditing.facts import AttackFacts
from robust0.errors import RecipeError
from robust0.recipes.schema import AttackSpec
from robust0.records import Settings
from robust0.threats import Threat
from robust0.units import plural

Entries = tuple[tuple[str, Attack[Any]], ...]


def attack_entries(specs: Sequence[AttackSpec]) -> Entries:
    """The attacks of a recipe, their settings checked against the attacks themselves."""
    return tuple((spec.name, _attack(spec)) for spec in specs)


def serving(entries: Entries, unit: str) -> tuple[Entries, tuple[str, ...]]:
    """The attacks that can search in a unit, and the names of those that cannot."""
    kind = unit.partition(":")[0]
    able = tuple((n, a) for n, a in entries if a.units is None or kind in a.units)
    if not able:
        raise RecipeError(
            f"no attack of this audit can search {plural(unit)}",
            f"use one of {', '.join(n for n, (a, _) in battery().items() if a.units is None)}",
        )
    return able, tuple(name for name, attack in entries if (name, attack) not in able)


def _attack(spec: AttackSpec) -> Attack[Any]:
    kind = ATTACKS.find(spec.kind, f"the attack {spec.name}: ")
    try:
        # Without extra="forbid" a misspelt setting would be dropped and its default run.
        attack: Attack[Any] = TypeAdapter(kind).validate_python(dict(spec.params), extra="forbid")
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        place = ".".join(["audit.params", spec.name, *(str(part) for part in first["loc"])])
        raise RecipeError(
            f"{place}: {first['msg']}",
            f"set it with --set audit.params.{spec.name}.KEY=VALUE",
        ) from problem
    _check_name(spec, attack)
    return attack


def _check_name(spec: AttackSpec, attack: Attack[Any]) -> None:
    """Refuse an attack that is not what its name says: ensembles are counted by names."""
    owner, known = battery().get(spec.name, (None, None))
    if known is None or owner is None:
        return
    says = {"kind": owner.kind, **known.params}
    wrong = next((key for key, value in says.items() if getattr(attack, key) != value), None)
    if wrong is not None:
        raise RecipeError(
            f"the attack {spec.name} cannot have {wrong}: {getattr(attack, wrong)}",
            "spell it out under another name in audit.attacks",
        )


def attack_facts(
    entries: Entries, settings: Settings, image_shape: tuple[int, int, int], classes: int
) -> tuple[AttackFacts, ...]:
    """What a run records about its attacks."""
    return tuple(
        AttackFacts(
            name=name,
            kind=attack.kind,
            revision=attack.revision,
            params=asdict(attack),  # type: ignore[call-overload] # attacks are dataclasses
            notes=attack.notes,
            black_box=attack.black_box,
            passes={
                budget: attack.passes(Threat.of(budget, settings.unit), image_shape, classes)
                for budget in settings.budgets
            },
        )
        for name, attack in entries
    )
