"""Training methods by name: each is four parts (noise, labels, inner attack, objective).

``standard`` has no attack. It and ``sparse-at``, ``tradeoff``, ``strades-t`` and ``strades-f``
[paper, Sec. 5.1] may each carry ``+s`` (self-adaptive labels), ``+n`` (sparse noise) or ``+sn``.
"""

import difflib
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
    value_at,
)

PARTS: Final = ("noise", "labels", "inner", "objective")
CUSTOM: Final = "custom"
ALIASES: Final = {"fast-ls-l0": "strades-t+sn", "fast-ls-l0-f": "strades-f+sn"}

_MULTI_STEP = "[Zhong24] multi-step training"
_ONE_STEP = "source: robust0, from Table 3"
# The settings that make a method the method it is; all others are its tuning.
_IDENTITY: Final = (*((part, "kind") for part in PARTS), ("inner", "loss"))


@dataclass(frozen=True, slots=True)
class Method:
    """What a name stands for; ``expand`` turns it into the four parts."""

    name: str
    objective: str
    summary: str
    inner_loss: str | None = "ce"  # None: no attack
    self_adaptive: bool = False
    noise: bool = False


_BASES: Final = (
    Method("standard", "clean", "training on clean images", inner_loss=None),
    Method("sparse-at", "adversarial", "the paper's sAT: CE on adversarial images"),
    Method("tradeoff", "tradeoff", "(1-a) CE on clean + a CE on adversarial images"),
    Method("strades-t", "trades", "TRADES loss, attack on CE (training mode)"),
    Method("strades-f", "trades", "TRADES loss, attack on KL (full mode)", inner_loss="kl"),
)
_SUFFIXES: Final = {
    "": ("", False, False),
    "+s": (", self-adaptive labels", True, False),
    "+n": (", sparse noise", False, True),
    "+sn": (", self-adaptive labels, sparse noise", True, True),
}


def _all_methods() -> dict[str, Method]:
    methods: dict[str, Method] = {}
    for base in _BASES:
        for suffix, (words, self_adaptive, noise) in _SUFFIXES.items():
            name = base.name + suffix
            methods[name] = Method(
                name=name,
                objective=base.objective,
                summary=base.summary + words,
                inner_loss=base.inner_loss,
                self_adaptive=self_adaptive,
                noise=noise,
            )
    return methods


METHODS: Final = _all_methods()


def method_names() -> tuple[str, ...]:
    """Every name ``training.method`` takes, aliases first."""
    return (*ALIASES, *METHODS)


def find_method(name: str, asked: Origin = DEFAULT) -> Method:
    """The method of a name or alias; ``asked`` says who named it."""
    method = METHODS.get(ALIASES.get(name, name))
    if method is None:
        close = difflib.get_close_matches(name, method_names(), n=3, cutoff=0.5)
        raise RecipeError(
            asked.says(f"there is no training method named {name!r}"),
            f"did you mean {' or '.join(close)}?"
            if close
            else f"one of {', '.join(method_names())}",
        )
    return method


def expand(name: str, steps: int = 1) -> Branch:
    """The four parts of a method, each value with the section that states it.

    Args:
        name: a method's name or alias.
        steps: sPGD updates per batch; more than one brings the early stopping of [Zhong24].
    """
    method = find_method(name)
    label = f"method {name}"
    return {
        "noise": _noise(method, label),
        "labels": _labels(method, label),
        "inner": _inner(method, steps, label),
        "objective": _objective(method, label),
    }


def _leaf(value: object, label: str, note: str) -> Leaf:
    return Leaf(value, Origin(label, note))


def _noise(method: Method, label: str) -> Branch:
    if not method.noise:
        return {"kind": _leaf("none", label, "Sec. 5.1")}
    return {
        "kind": _leaf("sparse", label, "Sec. 5.1"),
        "factor": _leaf(2.0, label, "App. G"),
        "values": _leaf("box", label, "source: robust0"),
    }


def _labels(method: Method, label: str) -> Branch:
    if not method.self_adaptive:
        return {"kind": _leaf("hard", label, "Sec. 5.1")}
    # sparse-at has no clean branch: its only forward is the adversarial one.
    adversarial = method.objective == "adversarial"
    return {
        "kind": _leaf("self-adaptive", label, "Sec. 5.1, Alg. 1"),
        "momentum": _leaf(0.9, label, "Table 15"),
        "start": _leaf(0.5, label, "App. G, Table 14"),
        "input": (
            _leaf("adversarial", label, "source: robust0")
            if adversarial
            else _leaf("noisy", label, "Alg. 3")
        ),
    }


def _inner(method: Method, steps: int, label: str) -> Branch:
    if method.inner_loss is None:
        return {"kind": _leaf("none", label, "")}
    many = steps > 1
    mode = _MULTI_STEP if many else _ONE_STEP
    soft = method.self_adaptive
    return {
        "kind": _leaf("sparse-pgd", label, "Sec. 5.1"),
        "steps": _leaf(steps, label, "Sec. 5.2" if many else "Sec. 5.1"),
        "alpha": _leaf(0.25, label, "[Zhong24]"),
        "beta": _leaf(0.25, label, "[Zhong24]"),
        "patience": _leaf(10, label, "[Zhong24]"),
        "gradient": _leaf("rand", label, "[Zhong24]"),
        "select": _leaf("best" if many else "last", label, mode),
        "skip_misclassified": _leaf(many, label, mode),
        "stop_early": _leaf(many, label, mode),
        "loss": _leaf(method.inner_loss, label, "Sec. 5.1"),
        "labels": _leaf("soft" if soft else "hard", label, "Alg. 3" if soft else "Sec. 5.1"),
    }


def _objective(method: Method, label: str) -> Branch:
    kind = _leaf(method.objective, label, "Sec. 5.1")
    match method.objective:
        case "tradeoff":
            return {"kind": kind, "alpha": _leaf(0.75, label, "App. G")}
        case "trades":
            return {"kind": kind, "beta": _leaf(6.0, label, "App. G, Table 16")}
        case _:
            return {"kind": kind}


def chosen(training: Tree) -> str | None:
    """The method that a training block names, aliases resolved; None without one."""
    name = value_at(training, "method")
    return ALIASES.get(name, name) if isinstance(name, str) else None


def expand_training(training: Branch) -> Branch:
    """The training block with its four parts spelled out: the method's, then the recipe's own."""
    given = {part: branch(training.get(part), ("training", part)) for part in PARTS}
    named = training.get("method", Leaf(CUSTOM, DEFAULT))
    name = named.value if isinstance(named, Leaf) else None
    if not isinstance(name, str):
        raise RecipeError(
            origin_of(named).says(f"training.method must be a method's name, got {name!r}"),
            f"one of {', '.join(method_names())}",
        )
    if name == CUSTOM:
        return {**training, "method": named, **_spelled_out(given, origin_of(named))}
    find_method(name, origin_of(named))
    steps = value_at(given["inner"], "steps")
    usable = isinstance(steps, int) and not isinstance(steps, bool) and steps > 0
    expanded = expand(name, steps if usable and isinstance(steps, int) else 1)
    parts = {part: merge({part: expanded[part]}, {part: given[part]})[part] for part in PARTS}
    if any(value_at(parts, *path) != value_at(expanded, *path) for path in _IDENTITY):
        named = Leaf(CUSTOM, Origin("derived", f"parts differ from {name}"))
    return {**training, "method": named, **parts}


def _spelled_out(given: dict[str, Branch], origin: Origin) -> Branch:
    missing = [part for part in PARTS if "kind" not in given[part]]
    if missing:
        raise RecipeError(
            origin.says(f"without a training.method, training.{missing[0]}.kind must be given"),
            f"name a method ({', '.join(ALIASES)}, ...) or spell out {', '.join(PARTS)}",
        )
    return dict(given)


def defaults() -> Branch:
    """The usual kinds of training blocks, so that a recipe may tune one without naming it."""
    kinds = {"optimizer": "sgd", "schedule": "steps", "augment": "shift"}
    tree = grow(
        {"training": {key: {"kind": kind} for key, kind in kinds.items()}}, Origin("default")
    )
    return branch(tree, ())
