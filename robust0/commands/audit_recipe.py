"""From the options of ``robust0 audit`` to a recipe: which data, which budgets, which attacks.

No torch here: what can be refused is refused before it is imported.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from robust0.auditing.facts import Facts
from robust0.data.datasets import in_cache
from robust0.errors import DataError, RecipeError
from robust0.gate.metrics import Floor
from robust0.recipes.load import ResolvedRecipe, load_recipe, recipe_of
from robust0.recipes.schema import threat_changes
from robust0.records import CLEAN, Unit
from robust0.threats import Threat
from robust0.units import plural

if TYPE_CHECKING:
    from robust0.models.metadata import Budget
    from robust0.runs.subject import ModelReference

DEFAULT_IMAGES = 1000
SAMPLE = "sample"


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What the command line said; None and empty mean "as model, recipe or default have it"."""

    model: str | None = None
    factory: str | None = None
    data: str | None = None
    data_dir: Path | None = None
    recipe: str | None = None
    eps: str | None = None
    unit: Unit | None = None
    thorough: bool = False
    images: int | None = None
    effort: str | None = None
    attacks: str | None = None
    mode: str | None = None
    seed: int | None = None
    batch_size: int | None = None
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    compile: bool = False
    overrides: tuple[str, ...] = ()
    out: Path | None = None
    resume: Path | None = None
    floors: tuple[Floor, ...] = ()  # --fail-under
    tolerance: float | None = None  # a share; of effort converged
    max_passes: int | None = None
    max_minutes: float | None = None
    like: Path | None = None  # a baseline whose way of searching is taken over

    @property
    def says_budget(self) -> bool:
        """Whether the user chose the budget, not the checkpoint or a default."""
        return self.eps is not None or self.recipe is not None or self._sets("threat.")

    @property
    def says_data(self) -> bool:
        """Whether the user chose the data."""
        return self.data is not None or self.recipe is not None or self._sets("dataset.name")

    def _sets(self, key: str) -> bool:
        return any(text.strip().startswith(key) for text in self.overrides)

    def settings(self) -> dict[str, object]:
        """The options that are values of the recipe; without a recipe, the command's defaults."""
        usual = "cascade" if self.effort == "converged" else "battery"
        mode = self.mode or (None if self.recipe and usual == "battery" else usual)
        group = "worst-case" if mode == "cascade" else "all"
        words = (self.attacks or ("" if self.recipe else group)).split(",")
        named = {
            "audit.mode": mode,
            "audit.effort": self.effort or (None if self.recipe else "quick"),
            "audit.images": self.images
            if self.images is not None or self.recipe
            else DEFAULT_IMAGES,
            "audit.attacks": [word.strip() for word in words if word.strip()] or None,
            "audit.seed": self.seed,
            "audit.tolerance": self.tolerance,
            "audit.max_passes": self.max_passes,
            "audit.max_minutes": self.max_minutes,
        }
        return {key: value for key, value in named.items() if value is not None}


def budgets_of(
    eps: str | None, unit: Unit | None, known: "Budget | None"
) -> tuple[tuple[int, ...], Unit] | None:
    """Budgets and their unit: as asked, or as the checkpoint says; None: as the recipe says."""
    if unit is not None:
        unit = Threat.of(1, unit).unit  # refuses unknown units; patch means patch:4
    if eps is None:
        if unit is not None and unit != ("pixel" if known is None else known.unit):
            raise RecipeError(
                f"--unit {unit} needs a budget in {plural(unit)}", "add --eps, for example --eps 20"
            )
        return None if known is None else ((known.amount,), known.unit)
    parts = [part.strip() for part in eps.split(",")]
    if not all(re.fullmatch(r"\d{1,9}", part) and int(part) > 0 for part in parts):
        raise RecipeError(
            f"--eps must be whole numbers of at least 1, got {eps!r}", "for example --eps 5,10,20"
        )
    return tuple(sorted({int(part) for part in parts}, reverse=True)), unit or "pixel"


def data_name(options: AuditOptions, named: "ModelReference") -> tuple[str | None, tuple[str, ...]]:
    """Which data, and what to warn of; None: the recipe's."""
    if options.says_data and options.data is None:
        return None, ()
    known = named.metadata.dataset if named.metadata is not None else None
    name = options.data or known
    if name is None:
        raise DataError(
            f"{named.shown} does not say which data it is for",
            "give --data cifar10, folder:PATH or npz:PATH",
        )
    absent = name == "cifar10" and options.data_dir is None and not in_cache(name)
    if options.data is None and name == SAMPLE and not options.floors:
        return SAMPLE, ()  # what it was trained on, too
    if options.data is None and (absent or name == SAMPLE):
        return SAMPLE, (
            "CIFAR-10 is not in the cache: these are the 1,000 test images embedded in robust0 "
            "(robust0 data pull cifar10 brings all 10,000)",
        )
    return name, ()


def resolve_audit(
    options: AuditOptions,
    named: "ModelReference",
    data: str | None,
    asked: tuple[tuple[int, ...], Unit] | None,
) -> ResolvedRecipe:
    """The recipe of a fresh audit: the data's own, with the model, the data and the options in."""
    name = options.recipe or recipe_of(data)
    changes: dict[str, object] = {}
    known = named.metadata
    if known is not None and known.arch_args:
        changes["model.args"] = dict(known.arch_args)
    if data is not None:
        changes["dataset.name"] = data
        if options.data is None and known is not None and known.variant in ("official", "paper"):
            changes["dataset.variant"] = known.variant  # data that is said is official
        if ":" in data:
            square = known is not None and data.startswith("folder:")
            changes["dataset.image_size"] = known.input_size[1] if known and square else None
    if asked is not None:
        changes |= threat_changes(asked[0][0], asked[1])
    changes |= options.settings()
    return load_recipe(name, model=named.arch, changes=changes, overrides=options.overrides)


def require_said(*, budget: bool, data: bool, whose: str) -> None:
    """Refuse a floor, a gate or a baseline whose budget or data a checkpoint chose."""
    if budget and data:
        return
    missing = [name for name, said in (("--eps", budget), ("--data", data)) if not said]
    what = [name for name, said in (("budget", budget), ("data", data)) if not said]
    raise RecipeError(
        f"{whose} took its {' and '.join(what)} from the checkpoint or a default, and a condition "
        "must not rest on that",
        f"say {' and '.join(missing)}, or --recipe",
    )


def check_floors(floors: Sequence[Floor], facts: Facts) -> None:
    """Refuse a floor for a number that the run will not have, before it starts."""
    names = [CLEAN, "worst-case", *facts.ensembles]
    if facts.settings.mode == "battery":
        names += [attack.name for attack in facts.attacks]
    for floor in floors:
        metric = floor.metric
        if metric.name not in names:
            raise RecipeError(
                f"--fail-under {metric}: this audit has no such number",
                f"one of {', '.join(names)}",
            )
        if metric.budget not in (None, *facts.settings.budgets):
            raise RecipeError(
                f"--fail-under {metric}: this audit has no budget of {metric.budget}",
                f"one of {', '.join(str(budget) for budget in facts.settings.budgets)}",
            )
