"""From verdicts to numbers: a pure fold, without torch, so that any report can be rebuilt."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from robust0.auditing.deadline import timed_out
from robust0.auditing.doubts import doubts
from robust0.auditing.facts import AttackFacts, Facts
from robust0.auditing.interval import accuracy
from robust0.auditing.known import fallen, hits_within
from robust0.auditing.round_rows import not_converged, round_rows
from robust0.auditing.rounds import plan_of
from robust0.records import (
    CLEAN,
    Amount,
    AttackRow,
    BudgetResult,
    ClassRow,
    CurvePoint,
    EnsembleRow,
    Flag,
    Results,
    Verdict,
    configured,
)


def summarise_audit(facts: Facts, verdicts: Sequence[Verdict], flags: Sequence[Flag]) -> Results:
    """The results of a complete run.

    Args:
        facts: what the run knows of itself.
        verdicts: of every image under every attack that it met.
        flags: raised by the checks before the attacks.
    """
    clean = [verdict for verdict in verdicts if verdict.attack == CLEAN]
    correct = {verdict.image for verdict in clean if not verdict.fooled}
    images = len(clean)
    budgets = tuple(
        _budget(facts, budget, verdicts, len(correct), images) for budget in facts.settings.budgets
    )
    rounds = round_rows(facts, verdicts)
    limited = None if timed_out(flags) else not_converged(facts, rounds)
    return Results(
        subject=facts.subject,
        settings=facts.settings,
        clean=accuracy(len(correct), images),
        budgets=budgets,
        curve=curve_points(facts.settings.budgets, verdicts, len(correct), images),
        rounds=rounds,
        classes=_classes(facts, verdicts, clean),
        flags=(
            *flags,
            *doubts(facts, verdicts, correct, images),
            *([limited] if limited is not None else []),
        ),
        untested=facts.untested,
    )


def _budget(
    facts: Facts, budget: Amount, verdicts: Sequence[Verdict], correct: int, images: int
) -> BudgetResult:
    """A row per attack and the ensembles, from every hit of the run that fits the budget."""
    hits = hits_within(verdicts, budget)
    times_broken = Counter(image for own in hits.values() for image in own)
    cascade = facts.settings.mode == "cascade"
    met: dict[str, list[Verdict]] = {attack.name: [] for attack in facts.attacks}
    for verdict in verdicts:
        if verdict.budget == budget and verdict.attack != CLEAN:
            met[configured(verdict.attack)].append(verdict)
    rows = tuple(
        _row(attack, met[attack.name], hits.get(attack.name, {}), times_broken, correct, images,
             cascade=cascade)
        for attack in facts.attacks
    )  # fmt: skip
    groups = {
        name: members
        for name, members in sorted(facts.ensembles.items())
        if plan_of(facts).tells(members)
    }
    groups["worst-case"] = tuple(attack.name for attack in facts.attacks)
    ensembles = [
        EnsembleRow(
            name=name,
            attacks=members,
            robust=accuracy(correct - len(fallen(hits, members)), images),
        )
        for name, members in groups.items()
    ]
    return BudgetResult(
        unit=facts.settings.unit, budget=budget, attacks=rows, ensembles=tuple(ensembles)
    )


def _row(
    attack: AttackFacts,
    verdicts: list[Verdict],
    known: Mapping[int, Verdict],
    times_broken: Counter[int],
    correct: int,
    images: int,
    *,
    cascade: bool,
) -> AttackRow:
    # In a cascade a row says what the attack did to the images it met.
    hits = [verdict for verdict in verdicts if verdict.fooled] if cascade else [*known.values()]
    spent: Counter[int] = Counter()  # by image, over all rounds
    for verdict in verdicts:
        spent[verdict.image] += verdict.forwards + verdict.backwards
    return AttackRow(
        name=attack.name,
        kind=attack.kind,
        revision=attack.revision,
        params=attack.params,
        notes=attack.notes,
        attacked=len(spent),
        broken=len(hits),
        only=None if cascade else sum(times_broken[verdict.image] == 1 for verdict in hits),
        robust=None if cascade else accuracy(correct - len(hits), images),
        median_distance=_median(verdict.needed for verdict in hits),
        median_passes=_median(spent.values()),
        fragile=sum(verdict.fragile for verdict in hits),
        violations=sum(verdict.violation != "" for verdict in verdicts),
    )


def curve_points(
    budgets: Iterable[Amount], verdicts: Iterable[Verdict], correct: int, images: int
) -> tuple[CurvePoint, ...]:
    """Points at 0, at these budgets and wherever an image falls to any of these verdicts."""
    least: dict[int, Amount] = {}
    for verdict in verdicts:
        if verdict.attack != CLEAN and verdict.fooled:
            known = least.get(verdict.image, verdict.needed)
            least[verdict.image] = min(known, verdict.needed)
    falls = Counter(least.values())
    standing, points = correct, []
    for budget in sorted({0, *falls, *budgets}):
        standing -= falls[budget]
        points.append(CurvePoint(budget=budget, robust=accuracy(standing, images)))
    return tuple(points)


def _classes(
    facts: Facts, verdicts: Sequence[Verdict], clean: list[Verdict]
) -> tuple[ClassRow, ...]:
    hits = hits_within(verdicts, facts.settings.budgets[0])
    broken = fallen(hits, hits)
    held = Counter(verdict.label for verdict in clean)
    right = Counter(verdict.label for verdict in clean if not verdict.fooled)
    robust = Counter(v.label for v in clean if not v.fooled and v.image not in broken)
    return tuple(
        ClassRow(
            label=label, name=facts.class_names[label], images=held[label], clean=right[label],
            robust=robust[label],
        )
        for label in sorted(held)
    )  # fmt: skip


def _median(values: Iterable[Amount]) -> float | None:
    known = list(values)
    return float(statistics.median(known)) if known else None
