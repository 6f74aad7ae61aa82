"""The gate: floors, and a paired comparison with a baseline. Pure; it decides, others print."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal

from robust0.decision import Check, Decision, PairedComparison, Replay, ReplayResult, points
from robust0.errors import RecipeError, RunError, UnreliableError
from robust0.gate.baseline import Baseline
from robust0.gate.differing import differences
from robust0.gate.metrics import Floor, Metric, plain_name
from robust0.gate.paired import ALPHA, compare_pairs
from robust0.records import CLEAN, Accuracy, Amount, Results, Unit
from robust0.units import counted
from robust0.wording import SAA, WORST_CASE, identity, tidy

Policy = Literal["strict", "significant"]
_MOST_NAMED = 12  # differences spelled out in one refusal


def floor_checks(results: Results, floors: Iterable[Floor]) -> tuple[Check, ...]:
    """One check per floor."""
    return tuple(_floor_check(results, floor) for floor in floors)


def drop_check(
    before: Baseline, after: Baseline, metric: Metric, max_drop: Fraction, policy: Policy
) -> Check:
    """The drop of one metric from baseline to run on the same images."""
    budget = before.settings.budgets[0] if metric.budget is None else metric.budget
    old, new = _bits(before, metric, budget), _bits(after, metric, budget)
    title = _title(metric.name, budget, before.settings.unit)
    right = [[bit == "1" for bit in side] for side in (old, new)]
    return paired_check(title, right[0], right[1], max_drop, policy)


def paired_check(
    title: str, before: Sequence[bool], after: Sequence[bool], max_drop: Fraction, policy: Policy
) -> Check:
    """The drop of one number, from which of the same images count for it before and after."""
    paired = compare_pairs(before, after)
    if policy == "significant" and paired.smallest is None:
        raise RecipeError(
            f"{paired.images} images are too few to show any drop: --policy significant would "
            "let everything pass",
            "audit more images, or use --policy strict",
        )
    # In whole images and exact fractions: 1 image of 1,000 is 0.1 points, not a rounding more.
    exceeded = 100 * (paired.worse - paired.better) > max_drop * paired.images
    failed = exceeded and (policy == "strict" or paired.p < ALPHA)
    return Check(
        metric=title,
        condition=f"drop of at most {points(float(max_drop))} ({policy})",
        passed=not failed,
        value=paired.after,
        message=_drop_message(title, paired, max_drop, policy, exceeded=exceeded),
        paired=paired,
    )


def default_metrics(results: Results) -> tuple[Metric, ...]:
    """What a gate compares unless told otherwise: the published ensemble and the worst case."""
    names = {row.name for row in results.budgets[0].ensembles} if results.budgets else set()
    return (Metric(SAA), Metric(WORST_CASE)) if SAA in names else (Metric(WORST_CASE),)


def require_reliable(flags: Iterable[str], allowed: Iterable[str], whose: str) -> None:
    """Refuse numbers that robust0 itself calls unreliable, unless each such flag is allowed."""
    found = sorted(set(flags) - set(allowed))
    if found:
        raise UnreliableError(
            f"the numbers of {whose} are not reliable: {', '.join(found)}",
            f"the report explains each flag; --allow {found[0]} accepts one knowingly",
        )


def decide(
    results: Results,
    checks: Sequence[Check],
    replay: Replay | None = None,
    caveats: Sequence[str] = (),
) -> Decision:
    """All checks of a gate on one run; at least one."""
    if not checks:
        raise RecipeError("a gate needs a condition", "give --baseline FILE or --fail-under saa=60")
    return Decision(
        identity=identity(results), checks=tuple(checks), replay=replay, caveats=tuple(caveats)
    )


def judge_replay(result: ReplayResult, max_drop: Fraction, *, decisive: bool) -> Replay:
    """An alarm when more images are newly broken than the accuracy may drop."""
    alarm = 100 * result.newly_broken > max_drop * result.images
    return Replay(result=result, allowed=float(max_drop), alarm=alarm, decisive=decisive)


def require_comparable(before: Baseline, after: Baseline) -> None:
    """Refuse to compare what was not measured alike, naming each difference."""
    found = differences(before, after)
    if found:
        more = len(found) - _MOST_NAMED
        named = [*found[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]
        raise RunError(
            f"run and baseline are not comparable: {'; '.join(named)}",
            "audit again with the baseline's settings, or write a new baseline",
        )


def _floor_check(results: Results, floor: Floor) -> Check:
    accuracy, budget = _accuracy(results, floor.metric)
    title = _title(floor.metric.name, budget, results.settings.unit)
    return floor_check(title, accuracy, floor.percent)


def floor_check(title: str, accuracy: Accuracy, percent: Fraction) -> Check:
    """One number against its floor, in whole images."""
    passed = 100 * accuracy.count >= percent * accuracy.images
    value = 100 * accuracy.share
    verb = "reaches" if passed else "is below"
    return Check(
        metric=title,
        condition=f"at least {plain_name(percent)} %",
        passed=passed,
        value=value,
        message=f"{title}: {value:.1f} % ({accuracy.count:,} of {accuracy.images:,} images) "
        f"{verb} the floor of {plain_name(percent)} %",
    )


def _accuracy(results: Results, metric: Metric) -> tuple[Accuracy, Amount]:
    if metric.name == CLEAN:
        return results.clean, 0
    wanted = results.settings.budgets[0] if metric.budget is None else metric.budget
    result = next((entry for entry in results.budgets if entry.budget == wanted), None)
    if result is None:
        raise _unknown_budget(wanted, [entry.budget for entry in results.budgets])
    found: dict[str, Accuracy | None] = {row.name: row.robust for row in result.attacks}
    found |= {row.name: row.robust for row in result.ensembles}
    if metric.name not in found:
        raise _unknown(metric, [CLEAN, *found])
    accuracy = found[metric.name]
    if accuracy is None:
        raise _no_accuracy(metric)
    return accuracy, wanted


def _bits(side: Baseline, metric: Metric, budget: Amount) -> str:
    """One digit per image, in the order of ascending ids."""
    entry = side.at(budget)
    if metric.name == CLEAN:
        bits = side.clean
    elif entry is None:
        raise _unknown_budget(budget, side.settings.budgets)
    elif metric.name in entry.ensembles:
        bits = entry.union(metric.name)
    elif metric.name not in entry.robust:
        raise _unknown(metric, [CLEAN, *entry.ensembles, *entry.robust])
    elif side.settings.mode == "cascade":
        raise _no_accuracy(metric)
    else:
        bits = entry.robust[metric.name]
    return "".join(bit for _, bit in sorted(zip(side.ids, bits, strict=True)))


def _drop_message(
    title: str, paired: PairedComparison, max_drop: Fraction, policy: Policy, *, exceeded: bool
) -> str:
    change = f"fell by {paired.drop:.1f}" if paired.drop >= 0 else f"rose by {-paired.drop:.1f}"
    shows = (
        f"{paired.images:,} images can show a drop of {paired.smallest:.2g} points"
        if paired.smallest is not None
        else f"{paired.images:,} images are too few to show any drop"
    )
    chance = "" if not exceeded or policy == "strict" or paired.p < ALPHA else ", within chance"
    return (
        f"{title} {change} points, {paired.before:.1f} -> {paired.after:.1f} % (95 % interval of "
        f"the drop {paired.low:.1f} to {paired.high:.1f}; {paired.worse} images lost, "
        f"{paired.better} won; one-sided exact McNemar p = {paired.p:.2g}); allowed: "
        f"{points(float(max_drop))} ({policy}{chance}); {shows}"
    )


def _title(name: str, budget: Amount, unit: Unit) -> str:
    return name if name == CLEAN else f"{tidy(name)} at {counted(budget, unit)}"


def _unknown(metric: Metric, known: Sequence[str]) -> RecipeError:
    names = ", ".join(tidy(name) for name in known)
    return RecipeError(f"the run has no metric {tidy(metric.name)!r}", f"one of {names}")


def _unknown_budget(budget: Amount, known: Sequence[Amount]) -> RecipeError:
    names = ", ".join(str(value) for value in known)
    return RecipeError(f"the run has no budget {budget}", f"its budgets are {names}")


def _no_accuracy(metric: Metric) -> RecipeError:
    return RecipeError(
        f"{tidy(metric.name)} has no accuracy of its own in a cascade",
        "gate an ensemble (saa, worst-case), or audit with --mode battery",
    )
