"""The examples of a report: images that fell, by the hit that changed least, and survivors."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from robust0.auditing.known import hits_within
from robust0.auditing.rundata import RunData
from robust0.records import CLEAN, Verdict, configured
from robust0.units import counted
from robust0.wording import class_name, tidy
from robust0.writers.picture import changed_picture, data_uri

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST = 200
_FALLEN = 150  # kept for images that fell, where there are as many
_MOST_BYTES = 3_000_000  # of either kind: large photographs make a page heavy


@dataclass(frozen=True, slots=True)
class Example:
    """One image before and after, as data URIs, with its words."""

    image: int
    label: int
    name: str  # of its class
    prediction: str
    fell: bool
    attack: str  # whose attempt is shown
    broken_by: tuple[int, ...]  # positions in the gallery's attacks
    changed: str  # such as "3 pixels"
    margin: float
    clean: str
    adversarial: str
    difference: str

    @property
    def margin_words(self) -> str:
        """The margin as people read it: two decimals, or the first that says something."""
        return f"{self.margin:.2f}" if abs(self.margin) >= 0.01 else f"{self.margin:.1g}"

    @property
    def size(self) -> int:
        """Bytes of its pictures."""
        return len(self.clean) + len(self.adversarial) + len(self.difference)


@dataclass(frozen=True, slots=True)
class Gallery:
    """What is shown, worst first, and what can be chosen from it."""

    cards: tuple[Example, ...]
    attacks: tuple[str, ...]
    classes: tuple[tuple[int, str], ...]
    about: str
    height: int
    width: int


def gallery_of(run: RunData) -> Gallery:
    """Up to ``MOST`` images of a run at its largest budget; classes take turns to be chosen."""
    results = run.report.results
    largest = results.budgets[0].budget if results.budgets else 0
    attacks = tuple(row.name for row in results.budgets[0].attacks) if results.budgets else ()
    hits = hits_within(run.verdicts.values(), largest)
    broken_by: dict[int, list[int]] = defaultdict(list)
    for place, attack in enumerate(attacks):
        for image in hits.get(attack, ()):
            broken_by[image].append(place)
    fallen, standing = shown_attempts(run)
    names = {label: tidy(name, 60) for label, name in enumerate(run.info.facts.class_names)}
    cards: list[Example] = []
    for chosen in (fallen, standing):
        size = 0
        own: list[Example] = []
        for verdict in chosen:
            card = _example(run, verdict, names, tuple(broken_by[verdict.image]))
            size += card.size
            if own and size > _MOST_BYTES:
                break
            own.append(card)
        cards += own
    down, total = sum(card.fell for card in cards), results.clean.count
    held = results.budgets[0].ensembles[-1].robust.count if results.budgets else total
    _, height, width = run.info.image_shape
    return Gallery(
        cards=tuple(cards),
        attacks=tuple(tidy(name, 40) for name in attacks),
        classes=tuple(sorted({(card.label, card.name) for card in cards})),
        about=f"{down:,} of {total - held:,} images that fell, {len(cards) - down:,} of {held:,} "
        "that survived every attack",
        height=height,
        width=width,
    )


def shown_attempts(run: RunData) -> tuple[list[Verdict], list[Verdict]]:
    """Of images that fell, and of survivors, the attempt to show of each; the worst first."""
    largest = run.report.results.budgets[0].budget if run.report.results.budgets else 0
    best: dict[int, Verdict] = {}
    kept, wrong = run.clean.rows(), set[int]()
    for key, verdict in run.verdicts.items():
        _, attack, image = key
        if attack == CLEAN and verdict.fooled:
            wrong.add(image)
        if attack == CLEAN or image not in kept or key not in run.attempts.found:
            continue
        held = best.get(image)
        if not verdict.violation and (held is None or _rank(verdict) < _rank(held)):
            best[image] = verdict
    every = sorted((v for v in best.values() if v.image not in wrong), key=_rank)
    fallen = _in_turn(v for v in every if v.fooled)
    standing = _in_turn(v for v in every if not v.fooled and v.budget == largest)
    few = max(_FALLEN, MOST - len(standing))
    fallen = fallen[:few]
    standing = standing[: MOST - len(fallen)]
    return sorted(fallen, key=_rank), sorted(standing, key=_rank)


def _in_turn(verdicts: Iterable[Verdict]) -> Sequence[Verdict]:
    """One of each class, then a second of each, and so on."""
    by_class: dict[int, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_class[verdict.label].append(verdict)
    turns = zip_longest(*(by_class[label] for label in sorted(by_class)))
    return [verdict for turn in turns for verdict in turn if verdict is not None]


def _rank(verdict: Verdict) -> tuple[float, ...]:
    """Hits before failures; hits by what they change, failures at the largest budget by margin."""
    if verdict.fooled:
        return 0, verdict.needed, verdict.margin, verdict.image
    return 1, -verdict.budget, verdict.margin, verdict.image


def _example(
    run: RunData, verdict: Verdict, names: dict[int, str], broken_by: tuple[int, ...]
) -> Example:
    row = run.clean.rows()[verdict.image]
    before: NDArray[np.float32] = run.clean.images[row].astype(np.float32) / np.float32(255)
    after = run.attempts.paint((verdict.budget, verdict.attack, verdict.image), before)
    differs = (before != after).any(axis=0)
    return Example(
        image=verdict.image,
        label=verdict.label,
        name=class_name(names, verdict.label),
        prediction=class_name(names, verdict.prediction),
        fell=verdict.fooled,
        attack=tidy(configured(verdict.attack)),
        broken_by=broken_by,
        changed=counted(verdict.needed if verdict.fooled else verdict.distance, verdict.unit),
        margin=verdict.margin,
        clean=data_uri(before),
        adversarial=data_uri(after),
        difference=data_uri(changed_picture(before, after, differs)),
    )
