"""A baseline: the verdicts of a run per image, its settings, and attempts worth trying again.

A gate turns the run it judges into the same form, so that like is compared with like.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, StringConstraints, model_validator

from robust0 import __version__, upgrades
from robust0.auditing.attempts import Key
from robust0.auditing.known import hits_within
from robust0.auditing.proof import REPORT
from robust0.auditing.rundata import RunData, validated
from robust0.errors import RunError
from robust0.files import read_regular, write_text
from robust0.records import (
    CLEAN,
    Amount,
    BudgetResult,
    Frozen,
    Settings,
    Subject,
    Verdict,
)
from robust0.threats.perturbation import Perturbation

SCHEMA: Final = 2
MAX_BYTES = 500_000_000
KEPT = 500  # attempts; at 20 pixels a few hundred kilobytes

# One digit per image, in the order of ids: 1 is classified correctly.
Bits = Annotated[str, StringConstraints(pattern=r"^[01]*$")]


class AttackIdentity(Frozen):
    """What makes two attacks the same."""

    name: str
    kind: str
    revision: int
    params: dict[str, int | float | str | bool | None]


class BudgetBits(Frozen):
    """Which images withstood each attack at one budget, and the attacks of each ensemble."""

    budget: Amount
    robust: dict[str, Bits]
    ensembles: dict[str, tuple[str, ...]]

    def union(self, ensemble: str) -> str:
        """Which images withstood every attack of an ensemble."""
        rows = zip(*(self.robust[name] for name in self.ensembles[ensemble]), strict=True)
        return _bits("0" not in row for row in rows)


class StoredAttempt(Frozen):
    """The best that any attack found on one image: a perturbation in JSON."""

    image: int
    attack: str
    budget: Amount
    margin: float
    fooled: bool
    places: tuple[Annotated[int, Field(ge=0, lt=2**31)], ...]
    values: tuple[tuple[Annotated[float, Field(ge=0, le=1)], ...], ...]  # one row per place

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        if len(self.values) != len(self.places) or len({len(row) for row in self.values}) != 1:
            raise ValueError("values must have one row per place, all of one length")
        return self

    def perturbation(self) -> Perturbation:
        """What differs from the clean image."""
        values = np.array(self.values, dtype=np.float32)
        return Perturbation(np.array(self.places, dtype=np.int32), values)


class Baseline(Frozen):
    """baseline.json."""

    schema_version: Literal[2] = Field(SCHEMA, alias="schema")
    kind: Literal["robust0-baseline"] = "robust0-baseline"
    robust0: str
    subject: Subject
    settings: Settings
    thorough: bool
    attacks: tuple[AttackIdentity, ...]
    ids: tuple[int, ...]
    labels: tuple[int, ...]
    clean: Bits
    budgets: tuple[BudgetBits, ...] = Field(min_length=1, description="largest first")
    attempts: tuple[StoredAttempt, ...] = ()
    flags: tuple[str, ...] = Field((), description="fatal ones: why its numbers may mislead")

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )

    @model_validator(mode="after")
    def _one_digit_per_image(self) -> Self:
        names = {attack.name for attack in self.attacks}
        bits = [self.clean, *(row for budget in self.budgets for row in budget.robust.values())]
        if any(len(row) != len(self.ids) for row in (self.labels, *bits)):
            raise ValueError("labels and verdicts must have one entry per image id")
        if len(set(self.ids)) != len(self.ids):
            raise ValueError("an image id occurs twice")
        if not {attempt.image for attempt in self.attempts} <= set(self.ids):
            raise ValueError("an attempt names an image that is not in ids")
        for budget in self.budgets:
            members = {name for group in budget.ensembles.values() for name in group}
            if set(budget.robust) != names or not members <= names:
                raise ValueError(f"the attacks at budget {budget.budget} are not those listed")
        return self

    def at(self, budget: Amount) -> BudgetBits | None:
        """What is known at a budget."""
        return next((entry for entry in self.budgets if entry.budget == budget), None)

    def survived(self) -> dict[int, bool]:
        """By image id: right on the clean image and under every attack at the largest budget."""
        rows = zip(self.clean, *self.budgets[0].robust.values(), strict=True)
        return {i: all(b == "1" for b in bits) for i, bits in zip(self.ids, rows, strict=True)}


def of_run(run: RunData, *, attempts: int = 0) -> Baseline:
    """A run as a baseline with up to this many attempts."""
    results = run.report.results
    if not results.budgets:
        raise RunError(f"the run in {run.folder} has no results", "audit with at least one attack")
    wrong = run.disagreement()
    if wrong:
        raise RunError(
            f"{run.folder / REPORT} does not follow from its run: {wrong}",
            f"rebuild it with robust0 report {run.folder}, or audit again",
        )
    ids = run.images
    clean = [run.verdicts[0, CLEAN, image] for image in ids]
    return Baseline(
        robust0=__version__,
        subject=results.subject,
        settings=results.settings,
        thorough=run.info.facts.thorough,
        attacks=tuple(
            AttackIdentity(name=row.name, kind=row.kind, revision=row.revision, params=row.params)
            for row in results.budgets[0].attacks
        ),
        ids=ids,
        labels=tuple(verdict.label for verdict in clean),
        clean=_bits(not verdict.fooled for verdict in clean),
        budgets=tuple(_at_budget(run, result) for result in results.budgets),
        attempts=_stored(run, attempts) if attempts else (),
        flags=tuple(sorted({flag.name for flag in results.flags if flag.fatal})),
    )


def write(path: Path, baseline: Baseline) -> None:
    """Write baseline.json, whole or not at all, a line per part so that diffs stay readable.

    An older baseline is replaced; a file that is something else is not.
    """
    if path.exists():
        read(path)
    document: dict[str, Any] = baseline.model_dump(mode="json", by_alias=True)
    attempts = document.pop("attempts")
    parts = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
    rows = ",\n".join(f"  {json.dumps(attempt)}" for attempt in attempts)
    parts.append(f' "attempts": [\n{rows}\n ]' if rows else ' "attempts": []')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "{\n" + ",\n".join(parts) + "\n}\n")
    except OSError as problem:
        raise RunError(
            f"cannot write {path}: {problem.strerror}", "choose a writable place"
        ) from problem


def read(path: Path) -> Baseline:
    """A baseline.json; a file is untrusted input."""
    try:
        document = json.loads(read_regular(path, MAX_BYTES))
    except FileNotFoundError:
        raise RunError(
            f"there is no baseline {path}", f"make one: robust0 gate RUN --write-baseline {path}"
        ) from None
    except (OSError, ValueError, RecursionError) as problem:
        raise RunError(f"{path} cannot be read: {problem}", "give a baseline.json") from problem
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind != "robust0-baseline":
        raise RunError(
            f"{path} is not a baseline", "give a file that robust0 gate RUN --write-baseline wrote"
        )
    if document.get("schema") not in (1, SCHEMA):
        raise RunError(
            f"{path} has schema {document.get('schema')!r}, expected {SCHEMA}",
            "write it anew with this version: robust0 gate RUN --write-baseline",
        )
    return validated(Baseline, upgrades.baseline(document), path)


def kept_attempts(run: RunData, most: int) -> list[tuple[Key, Verdict]]:
    """Per image its lowest-margin attempt at the largest budget; survivors first, then hits.

    A survivor with a small margin is what a slightly worse model loses first. Half of the places
    are for hits, and either kind may use what the other leaves.
    """
    largest = run.report.results.budgets[0].budget
    best: dict[int, tuple[Key, Verdict]] = {}
    for key, attempt in run.attempts.found.items():
        verdict = run.verdicts.get(key)
        budget, _, image = key
        if verdict is None or budget != largest or verdict.violation or not len(attempt.places):
            continue
        held = best.get(image)
        if held is None or verdict.margin < held[1].margin:
            best[image] = key, verdict
    ranked = sorted(best.values(), key=lambda pair: (pair[1].margin, pair[1].image))
    survivors = [pair for pair in ranked if not pair[1].fooled]
    hits = [pair for pair in ranked if pair[1].fooled]
    survivors = survivors[: max(most // 2, most - len(hits))]
    return survivors + hits[: most - len(survivors)]


def _stored(run: RunData, most: int) -> tuple[StoredAttempt, ...]:
    return tuple(
        StoredAttempt(
            image=verdict.image,
            attack=verdict.attack,
            budget=verdict.budget,
            margin=verdict.margin,
            fooled=verdict.fooled,
            places=tuple(run.attempts.found[key].places.tolist()),
            # The shortest decimals that give back the same float32.
            values=tuple(
                tuple(float(str(value)) for value in row) for row in run.attempts.found[key].values
            ),
        )
        for key, verdict in kept_attempts(run, most)
    )


def _at_budget(run: RunData, result: BudgetResult) -> BudgetBits:
    hits = hits_within(run.verdicts.values(), result.budget)

    def withstood(image: int, attack: str) -> bool:
        return not run.verdicts[0, CLEAN, image].fooled and image not in hits.get(attack, ())

    return BudgetBits(
        budget=result.budget,
        robust={
            row.name: _bits(withstood(image, row.name) for image in run.images)
            for row in result.attacks
        },
        ensembles={row.name: row.attacks for row in result.ensembles},
    )


def _bits(rows: Iterable[bool]) -> str:
    return "".join("1" if row else "0" for row in rows)
