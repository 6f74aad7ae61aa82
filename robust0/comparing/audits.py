"""Audits side by side: every attack and ensemble they share, at every budget they share."""

from collections.abc import Sequence

from robust0.auditing.interval import accuracy
from robust0.auditing.summary import curve_points
from robust0.comparing.sides import Asked, AuditSide, Common, common_images
from robust0.comparison import (
    LETTERS,
    PAIRED,
    ComparedCurve,
    ComparedSide,
    ComparisonResults,
)
from robust0.errors import RunError
from robust0.gate.baseline import BudgetBits
from robust0.gate.differing import (
    attack_differences,
    loose_differences,
    search_differences,
    setting_differences,
)
from robust0.records import CLEAN, Amount, CurvePoint, configured
from robust0.units import plural
from robust0.wording import CASCADE, UPPER_BOUND, WORST_CASE, identity_of, tidy


def compare_audits(sides: Sequence[AuditSide]) -> ComparisonResults:
    """Two or more audits on the images, budgets and attacks that all of them have."""
    unit = _one_unit(sides)
    common = common_images(sides)
    budgets = _budgets(sides)
    asked = [common.ask("clean", CLEAN, 0, [_flags(s.baseline.clean) for s in sides])]
    for budget in budgets:
        asked += _at(common, sides, budget)
    # The worst case at the largest common budget is what a verdict is about.
    headline = next(place for place, one in enumerate(asked) if one.name == WORST_CASE)
    return ComparisonResults(
        kind="audit",
        unit=unit,
        images=len(common.ids),
        sides=tuple(_side(*pair, sides[0]) for pair in zip(LETTERS, sides, strict=False)),
        rows=tuple(common.row(one) for one in asked),
        headline=headline,
        curves=tuple(
            ComparedCurve(letter=letter, points=_curve(side, common, _shared(sides)))
            for letter, side in zip(LETTERS, sides, strict=False)
        ),
        separating=common.separating(asked[headline]),
        notes=_notes(sides, common, budgets),
        meaning=(UPPER_BOUND, PAIRED, *([CASCADE] if _cascades(sides) else [])),
    )


def _one_unit(sides: Sequence[AuditSide]) -> str:
    units = {side.baseline.settings.unit: side.source for side in sides}
    if len(units) > 1:
        told = "; ".join(f"{tidy(source)} counts {plural(unit)}" for unit, source in units.items())
        raise RunError(f"budgets in other units do not compare: {told}", "audit in one unit")
    return next(iter(units))


def _budgets(sides: Sequence[AuditSide]) -> list[Amount]:
    """Those that all have, largest first."""
    own = [[entry.budget for entry in side.baseline.budgets] for side in sides]
    shared = [budget for budget in own[0] if all(budget in others for others in own)]
    if not shared:
        told = "; ".join(
            f"{tidy(side.source)} has {', '.join(map(str, budgets))}"
            for side, budgets in zip(sides, own, strict=True)
        )
        raise RunError(f"they have no budget in common: {told}", "audit with the same --eps")
    return sorted(shared, reverse=True)


def _cascades(sides: Sequence[AuditSide]) -> bool:
    return any(side.baseline.settings.mode == "cascade" for side in sides)


def _shared(sides: Sequence[AuditSide]) -> tuple[str, ...]:
    """The attacks that all have, by name."""
    own = [[attack.name for attack in side.baseline.attacks] for side in sides]
    return tuple(name for name in own[0] if all(name in others for others in own))


def _at(common: Common, sides: Sequence[AuditSide], budget: Amount) -> list[Asked]:
    """Attacks, then ensembles, at one budget."""
    known = [entry for side in sides if (entry := side.baseline.at(budget)) is not None]
    shared, asked = _shared(sides), list[Asked]()
    if not _cascades(sides):
        if not shared:
            raise RunError("they have no attack in common", "audit with the same --attacks")
        asked += [
            common.ask("attack", name, budget, [_flags(bits.robust[name]) for bits in known])
            for name in shared
        ]
    for name, members in known[0].ensembles.items():
        if name != WORST_CASE and all(bits.ensembles.get(name) == members for bits in known):
            rights = [_flags(bits.union(name)) for bits in known]
            asked.append(common.ask("ensemble", name, budget, rights))
    worst = [_worst(bits, None if _cascades(sides) else shared) for bits in known]
    return [*asked, common.ask("ensemble", WORST_CASE, budget, worst)]


def _worst(bits: BudgetBits, attacks: Sequence[str] | None) -> list[bool]:
    """Which images withstood these attacks; all that there are, if None."""
    names = list(bits.robust) if attacks is None else attacks
    return ["0" not in row for row in zip(*(bits.robust[name] for name in names), strict=True)]


def _flags(bits: str) -> list[bool]:
    return [bit == "1" for bit in bits]


def _side(letter: str, side: AuditSide, first: AuditSide) -> ComparedSide:
    base = side.baseline
    subject, settings = base.subject, base.settings
    return ComparedSide(
        letter=letter,
        source=side.source,
        model=subject.model,
        arch=subject.arch,
        method=subject.method,
        sha256=subject.sha256,
        images=len(base.ids),
        identity=identity_of(settings, len(base.attacks), len(base.ids)),
        unreliable=base.flags,
        differs=_differs(first, side),
        settings={
            "data": f"{subject.dataset} {subject.split}",
            "data fingerprint": subject.data_fingerprint,
            "images": f"{len(base.ids):,}",
            "budgets": ", ".join(str(value) for value in settings.budgets),
            "effort": settings.effort_name,
            "mode": settings.mode,
            "seed": str(settings.seed),
            "attacks": ", ".join(f"{a.name} (revision {a.revision})" for a in base.attacks),
            "search in": settings.search_dtype + (", compiled" if settings.compiled else ""),
            "images per model call": str(settings.batch_size),
            "device; torch": f"{settings.device}; {settings.torch}",
            "robust0": base.robust0,
        },
    )


def _curve(side: AuditSide, common: Common, shared: Sequence[str]) -> tuple[CurvePoint, ...]:
    """From every hit of the run; a baseline knows the budgets attacked, and nothing between."""
    base, wanted = side.baseline, set(common.ids)
    names = {attack.name for attack in base.attacks}
    counted = names if base.settings.mode == "cascade" else set(shared)
    clean = _flags(base.clean)
    correct = sum(right for image, right in zip(base.ids, clean, strict=True) if image in wanted)
    if side.run is not None:
        verdicts = [
            verdict
            for verdict in side.run.verdicts.values()
            if verdict.image in wanted and configured(verdict.attack) in counted
        ]
        return curve_points(base.settings.budgets, verdicts, correct, len(wanted))
    if side.results is not None and wanted == set(base.ids) and counted == names:
        return side.results.curve
    points = [CurvePoint(budget=0, robust=accuracy(correct, len(wanted)))]
    for bits in reversed(base.budgets):
        stood = _worst(bits, [name for name in bits.robust if name in counted])
        count = sum(one for image, one in zip(base.ids, stood, strict=True) if image in wanted)
        points.append(CurvePoint(budget=bits.budget, robust=accuracy(count, len(wanted))))
    return tuple(points)


def _differs(first: AuditSide, side: AuditSide) -> tuple[str, ...]:
    """How a search differs from the first one: numbers may differ for that reason alone."""
    one, other = first.baseline, side.baseline
    same = one.settings.effort == other.settings.effort  # else the settings follow from it
    found = setting_differences(one, other)
    found += attack_differences(one.attacks, other.attacks, params=same)
    found += search_differences(one, other)
    names = [{attack.name for attack in base.attacks} for base in (one, other)]
    if _cascades((first, side)) and names[0] != names[1]:
        found.append("the worst case is over other attacks")
    return tuple(found)


def _notes(
    sides: Sequence[AuditSide], common: Common, budgets: Sequence[Amount]
) -> tuple[str, ...]:
    """What was left out, and what may move borderline images."""
    shared, notes = _shared(sides), list[str]()
    if any(len(side.baseline.ids) != len(common.ids) for side in sides):
        own = ", ".join(
            f"{letter} has {len(side.baseline.ids):,}"
            for letter, side in zip(LETTERS, sides, strict=False)
        )
        notes.append(f"compared on the {len(common.ids):,} images that all have: {own}")
    for letter, side in zip(LETTERS, sides, strict=False):
        base = side.baseline
        extra = [str(entry.budget) for entry in base.budgets if entry.budget not in budgets]
        if extra:
            notes.append(f"left out: {letter} at {', '.join(extra)}")
        alone = [tidy(attack.name) for attack in base.attacks if attack.name not in shared]
        if alone and not _cascades(sides):
            over = f"; the worst case is over the {len(shared)} common attacks"
            notes.append(f"left out: {letter} under {', '.join(alone)}{over}")
    for letter, side in zip(LETTERS[1:], sides[1:], strict=False):
        notes += [
            f"{letter} beside A: {text}"
            for text in loose_differences(sides[0].baseline, side.baseline)
        ]
    return tuple(notes)
