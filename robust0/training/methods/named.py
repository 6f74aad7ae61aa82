"""Training methods by name: each is a choice of noise, labels, inner attack, objective and step.

``standard`` has no attack. It, ``sparse-at``, ``tradeoff``, ``strades-t``, ``strades-f``
[Fast-LS, Sec. 5.1] and ``free-at`` [Shafahi19] may each carry ``+s`` (self-adaptive labels), ``+n``
(sparse noise) or ``+sn``, ``+ls`` (label smoothing) or ``+lsn``. ``partition-vote``, ``ablation``
and ``masks`` make classifiers that can be certified; their labels are smoothed.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from robust0.errors import RecipeError
from robust0.registry import OWN, Registry, imported, settings_of
from robust0.training.methods import ablation as ablation  # these join the steps
from robust0.training.methods import free_at as free_at
from robust0.training.methods import masks as masks
from robust0.training.methods import partition_vote as partition_vote
from robust0.training.methods.base import STEPS
from robust0.training.methods.inner import INNER_ATTACKS
from robust0.training.methods.labels import LABELS
from robust0.training.methods.noise import NOISES
from robust0.training.methods.objectives import OBJECTIVES

FAMILIES: Final[Mapping[str, Registry[Any]]] = {
    "noise": NOISES,
    "labels": LABELS,
    "inner": INNER_ATTACKS,
    "objective": OBJECTIVES,
    "step": STEPS,
}
ALIASES: Final = {"fast-ls-l0": "strades-t+sn", "fast-ls-l0-f": "strades-f+sn"}
Sourced = dict[str, tuple[object, str]]  # a value and where it comes from, by setting


@dataclass(frozen=True, slots=True)
class NamedMethod:
    """What a name stands for: the kinds of its parts, and the loss of the attack."""

    name: str
    summary: str
    objective: str
    inner: str = "sparse-pgd"
    inner_loss: str = "ce"
    labels: str = "hard"
    noise: str = "none"
    step: str = "plain"


_BASES: Final = (
    NamedMethod("standard", "training on clean images", "clean", inner="none"),
    NamedMethod("sparse-at", "the paper's sAT: CE on adversarial images", "adversarial"),
    NamedMethod("tradeoff", "(1-a) CE on clean + a CE on adversarial images", "tradeoff"),
    NamedMethod("strades-t", "TRADES loss, attack on CE (training mode)", "trades"),
    NamedMethod("strades-f", "TRADES loss, attack on KL (full mode)", "trades", inner_loss="kl"),
    NamedMethod(
        "free-at", "batches replayed, one gradient for weights and perturbation", "adversarial",
        inner="none", step="free-at",
    ),
)  # fmt: skip
# These train on parts of clean images, for classifiers that can be certified.
_PARTS: Final = tuple(
    NamedMethod(name, summary, "clean", inner="none", labels="smoothed", step=name)
    for name, summary in (
        ("partition-vote", "a network of disjoint views, whose votes can be certified"),
        ("ablation", "a network of a few random pixels, for randomised ablation"),
        ("masks", "a network of images with lattices hidden, for double masking"),
    )
)
_SUFFIXES: Final = {
    "": ("", {}),
    "+s": (", self-adaptive labels", {"labels": "self-adaptive"}),
    "+n": (", sparse noise", {"noise": "sparse"}),
    "+sn": (", self-adaptive labels, sparse noise", {"labels": "self-adaptive", "noise": "sparse"}),
    "+ls": (", label smoothing", {"labels": "smoothed"}),
    "+lsn": (", label smoothing, sparse noise", {"labels": "smoothed", "noise": "sparse"}),
}


@cache
def methods() -> Mapping[str, NamedMethod]:
    """All methods by name, those of installed packages (``robust0.methods``) included."""
    rows = [
        replace(base, name=base.name + suffix, summary=base.summary + words, **parts)
        for base in _BASES
        for suffix, (words, parts) in _SUFFIXES.items()
    ]
    rows += _PARTS
    rows += [point.load() for point in entry_points(group="robust0.methods")]
    return {row.name: row for row in rows}


def method_names() -> tuple[str, ...]:
    """Every name ``training.method`` takes, aliases first."""
    return (*ALIASES, *methods())


def find_method(name: str, said: str = "") -> NamedMethod:
    """The method of a name, an alias or ``package.module:NAME``; ``said`` names the place."""
    if ":" in name:
        return _imported(name, said)
    method = methods().get(ALIASES.get(name, name))
    if method is None:
        close = difflib.get_close_matches(name, method_names(), n=3, cutoff=0.5)
        raise RecipeError(
            f"{said}there is no training method named {name!r}",
            f"did you mean {' or '.join(close)}?"
            if close
            else f"one of {', '.join(method_names())}",
        )
    return method


def _imported(reference: str, said: str) -> NamedMethod:
    method = imported(reference, "training method", said)
    if not isinstance(method, NamedMethod):
        raise RecipeError(
            f"{said}{reference} is not a training method",
            "it must be a robust0.training.methods.named.NamedMethod",
        )
    return method


def expand(name: str, given: Mapping[str, Mapping[str, object]]) -> dict[str, Sourced]:
    """The parts of a method, each setting with its value and the source of that value.

    Args:
        name: a method's name or alias.
        given: what the recipe itself says of the parts; some defaults follow from it.
    """
    method = find_method(name)
    parts = {part: _part(part, getattr(method, part), given.get(part, {})) for part in FAMILIES}
    inner, labels = parts["inner"], parts["labels"]
    if method.inner == "sparse-pgd":
        inner["loss"] = (method.inner_loss, "Sec. 5.1")
        if method.labels != "self-adaptive":
            inner["labels"] = ("hard", "Sec. 5.1")
    if method.labels == "self-adaptive" and not OBJECTIVES.find(method.objective).needs_clean:
        labels["input"] = ("adversarial", OWN)  # there is no other forward
    return parts


def _part(part: str, kind: str, given: Mapping[str, object]) -> Sourced:
    component = FAMILIES[part].find(kind)
    values: Sourced = {"kind": (kind, getattr(component, "source", OWN))}
    values |= {item.name: (item.default, item.source) for item in settings_of(component)}
    preset = getattr(component, "preset", None)
    return values if preset is None else values | preset(given)
