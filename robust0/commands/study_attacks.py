"""From a word of the command line to an attack that a study can use.

``training`` is what the model was trained with, ``one-step`` and ``multi-step`` are Sparse-PGD as
training runs it, ``clean`` is none; every other word is an attack of a battery. Settings follow
after commas: ``training,alpha=0.25``, ``multi-step,steps=100``, ``sparse-rs,queries=2000,eps=20``.
"""

import json
from dataclasses import dataclass
from typing import Any

from robust0.commands.build_attacks import attack_entries
from robust0.errors import RecipeError
from robust0.models.metadata import Budget, Metadata
from robust0.recipes.load import load_recipe, read_audit
from robust0.recipes.schema import TrainingSpec
from robust0.records import Unit
from robust0.registry import only_named
from robust0.runs.subject import ModelReference
from robust0.study.perturb import AuditAttack, Perturber, TrainingAttack, Unperturbed
from robust0.threats import Threat
from robust0.training.methods.inner import INNER_ATTACKS, NoAttack
from robust0.training.methods.named import expand
from robust0.units import plural

TRAINING, ONE_STEP, MULTI_STEP, CLEAN = "training", "one-step", "multi-step", "clean"
_UNBRIDLED = {"select": "best", "skip_misclassified": False, "stop_early": False}
_STEPS = 100  # of multi-step


@dataclass(frozen=True, slots=True)
class AttackChoice:
    """What decides an attack beside its own words."""

    eps: int | None = None  # None: the model's own budgets
    unit: Unit | None = None
    effort: str = "quick"
    seed: int = 0
    evaluation: bool = False  # whether attacks of training get the budget of the evaluation


def perturber(words: str, model: ModelReference, choice: AttackChoice) -> Perturber:
    """The attack that the words name, for this model."""
    name, settings = _parsed(words)
    if name == CLEAN:
        if settings:
            raise RecipeError(f"clean has no settings, got {words!r}", "say clean alone")
        return Unperturbed()
    eps = settings.pop("eps", choice.eps)
    if eps is not None and (isinstance(eps, bool) or not isinstance(eps, int) or eps < 1):
        raise RecipeError(f"eps must be a whole number of at least 1, got {eps!r}", "e.g. eps=20")
    if name in (TRAINING, ONE_STEP, MULTI_STEP):
        threat = _threat(eps, choice, model, training=not choice.evaluation)
        values = _inner(name, model, settings)
        if values["kind"] == NoAttack.kind:
            raise RecipeError(
                f"{model.shown} was trained without an attack",
                "name one: --attack one-step, multi-step, clean or an attack of a battery",
            )
        label = _label(name if name != TRAINING else f"training attack, {_steps(values)}", threat)
        try:
            inner = INNER_ATTACKS.read(values)
        except ValueError as problem:
            raise RecipeError(
                f"--attack {words}: {_first(problem)}",
                f"settings of this attack: {', '.join(key for key in values if key != 'kind')}",
            ) from problem
        return TrainingAttack(label, inner, threat, choice.seed)
    threat = _threat(eps, choice, model, training=False)
    named = {"mode": "battery", "effort": choice.effort, "attacks": [name], "seed": choice.seed}
    spec = read_audit(named | ({"params": {name: settings}} if settings else {}))
    if len(spec.attacks) > 1:
        raise RecipeError(f"{name} is a group of attacks", "name a single one")
    ((known, attack),) = attack_entries(spec.attacks)
    return AuditAttack(_label(known, threat), known, attack, threat, choice.seed)


def _parsed(words: str) -> tuple[str, dict[str, Any]]:
    name, *rest = (word.strip() for word in words.split(","))
    settings: dict[str, Any] = {}
    for item in rest:
        key, equals, value = item.partition("=")
        if not equals or not key or not name:
            raise RecipeError(
                f"{words!r} does not name an attack", "write NAME or NAME,KEY=VALUE,KEY=VALUE"
            )
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return name, settings


def _inner(name: str, model: ModelReference, settings: dict[str, Any]) -> dict[str, Any]:
    """The recipe form of an inner attack."""
    if name == TRAINING:
        found = trained_with(model)
        if found is not None:
            return {**INNER_ATTACKS.write(found.inner), **settings}
        method = _method(model)
    else:
        method = "sparse-at"
        if name == MULTI_STEP:
            settings = {"steps": _STEPS, **_UNBRIDLED, **settings}
    values = {
        key: value for key, (value, _) in expand(method, {"inner": settings})["inner"].items()
    }
    return {**values, **settings}


def trained_with(model: ModelReference) -> TrainingSpec | None:
    """The training of a checkpoint's own run, if its recipe still lies beside it."""
    known, path = model.metadata, model.path
    recipe = None if path is None else path.parent / "recipe.yaml"
    if known is None or known.recipe is None or recipe is None or not recipe.is_file():
        return None
    with only_named(()):
        resolved = load_recipe(str(recipe))
    return resolved.recipe.training if resolved.hash == known.recipe else None


def _method(model: ModelReference) -> str:
    known = model.metadata
    if known is None or known.method is None:
        raise RecipeError(
            f"{model.shown} does not say how it was trained",
            "name the attack: --attack one-step, multi-step, clean or an attack of a battery",
        )
    if known.method == "custom":
        raise RecipeError(
            f"{model.shown} was trained with a method of parts that its checkpoint does not name",
            "keep recipe.yaml of its run beside it, or name the attack: --attack one-step",
        )
    return known.method


def _threat(
    eps: int | None, choice: AttackChoice, model: ModelReference, *, training: bool
) -> Threat:
    known = _budget(model.metadata, training=training)
    if eps is not None:
        return Threat.of(eps, choice.unit or (known.unit if known is not None else "pixel"))
    if known is None or choice.unit not in (None, known.unit):
        unit = choice.unit or "pixel"
        raise RecipeError(f"{model.shown} does not say its budget in {plural(unit)}", "add --eps")
    return Threat.of(known.amount, known.unit)


def _budget(known: Metadata | None, *, training: bool) -> Budget | None:
    if known is None:
        return None
    return known.train_budget or known.eval_budget if training else known.eval_budget


def _steps(values: dict[str, Any]) -> str:
    steps = values.get("steps", 1)
    return "one step" if steps == 1 else f"{steps} steps"


def _label(name: str, threat: Threat) -> str:
    return f"{name}, {threat}"


def _first(problem: ValueError) -> str:
    """The first fault that pydantic found, on one line."""
    errors = getattr(problem, "errors", None)
    if errors is None:
        return " ".join(str(problem).split())
    first = errors(include_url=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
