"""The examples a report shows: hits with few changed sites, spread over classes."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from robust0.auditing.rundata import RunData
from robust0.records import Verdict
from robust0.units import counted
from robust0.wording import class_name, class_names, tidy
from robust0.writers.picture import changed_picture, data_uri

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST = 24
_MOST_BYTES = 4_000_000  # large photographs make a page heavy; a few of them tell as much


@dataclass(frozen=True, slots=True)
class Example:
    """One image before and after, as data URIs, with its words."""

    image: int
    label: str
    prediction: str
    attack: str
    changed: str  # such as "3 pixels"
    margin: float
    clean: str
    adversarial: str
    sites: str


def examples(run: RunData, most: int = MOST) -> list[Example]:
    """Up to ``most`` hits at the largest budget, the one with the fewest sites per image."""
    names = class_names(run.report.results)
    shown: list[Example] = []
    size = 0
    for verdict in shown_hits(run)[:most]:
        example = _example(run, verdict, names)
        size += sum(len(uri) for uri in (example.clean, example.adversarial, example.sites))
        if shown and size > _MOST_BYTES:
            break
        shown.append(example)
    return shown


def shown_hits(run: RunData) -> list[Verdict]:
    """Hits worth showing: classes take turns, within a class the fewest sites come first."""
    largest = run.report.results.budgets[0].budget if run.report.results.budgets else 0
    kept = run.clean.rows()
    best: dict[int, Verdict] = {}
    for (budget, attack, image), verdict in run.verdicts.items():
        shown = verdict.fooled and not verdict.violation and budget == largest and image in kept
        if not shown or (budget, attack, image) not in run.attempts.found:
            continue
        held = best.get(image)
        if held is None or _rank(verdict) < _rank(held):
            best[image] = verdict
    by_class: dict[int, list[Verdict]] = defaultdict(list)
    for verdict in sorted(best.values(), key=_rank):
        by_class[verdict.label].append(verdict)
    turns = zip_longest(*(by_class[label] for label in sorted(by_class)))
    return [verdict for turn in turns for verdict in turn if verdict is not None]


def _rank(verdict: Verdict) -> tuple[float, float, int, str]:
    return verdict.needed, verdict.margin, verdict.image, verdict.attack


def _example(run: RunData, verdict: Verdict, names: dict[int, str]) -> Example:
    row = run.clean.rows()[verdict.image]
    before: NDArray[np.float32] = run.clean.images[row].astype(np.float32) / np.float32(255)
    after = run.attempts.paint((verdict.budget, verdict.attack, verdict.image), before)
    differs = (before != after).any(axis=0)
    return Example(
        image=verdict.image,
        label=class_name(names, verdict.label),
        prediction=class_name(names, verdict.prediction),
        attack=tidy(verdict.attack),
        changed=counted(verdict.needed, verdict.unit),
        margin=verdict.margin,
        clean=data_uri(before),
        adversarial=data_uri(after),
        sites=data_uri(changed_picture(before, after, differs)),
    )
