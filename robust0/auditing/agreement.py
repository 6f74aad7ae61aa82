"""Whether the files of a run agree: verdicts with themselves, the report with what it rests on."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from robust0.auditing.facts import Facts
from robust0.auditing.summary import summarise_audit
from robust0.errors import RunError
from robust0.records import CLEAN, Accuracy, BudgetResult, Flag, Results, Verdict, configured


def sound(verdicts: list[Verdict], folder: Path | None) -> list[Verdict]:
    """The verdicts of a run directory; refuses those that contradict themselves."""
    if wrong := contradiction(verdicts):
        raise RunError(f"the verdicts in {folder} are damaged: {wrong}", "audit again")
    return verdicts


def contradiction(verdicts: Iterable[Verdict]) -> str:
    """The first verdict that says two things at once; empty if there is none."""
    labels: dict[int, int] = {}
    for verdict in verdicts:
        reason = _against_itself(verdict)
        if not reason and labels.setdefault(verdict.image, verdict.label) != verdict.label:
            reason = f"its label is {verdict.label}, elsewhere {labels[verdict.image]}"
        if reason:
            return (
                f"the verdict of {verdict.attack} on image {verdict.image} at {verdict.budget} "
                f"contradicts itself: {reason}"
            )
    return ""


def _against_itself(verdict: Verdict) -> str:
    wrong = verdict.prediction != verdict.label
    if verdict.fooled != (wrong and not verdict.violation):
        return (
            f"fooled is {verdict.fooled}, the prediction {verdict.prediction}, the label "
            f"{verdict.label}"
        )
    # Of equal logits the first one counts, so that a margin of 0 may be either.
    if (verdict.margin > 0 and verdict.fooled) or (verdict.margin < 0 and not wrong):
        return f"fooled is {verdict.fooled}, the margin {verdict.margin:g}"
    if verdict.fooled and not 0 <= verdict.needed <= verdict.budget:
        return f"a hit within {verdict.budget} needs {verdict.needed}"
    return ""


def disagreement(
    results: Results, facts: Facts, verdicts: Sequence[Verdict], flags: Sequence[Flag]
) -> str:
    """Where a report says other things than its run: facts, verdicts and checks; empty: nowhere."""
    known = {attack.name: attack for attack in facts.attacks}
    strange = next((v for v in verdicts if configured(v.attack) not in (CLEAN, *known)), None)
    if strange is not None:
        return f"the verdicts name an attack {strange.attack} that the run does not have"
    moved = next(
        (
            v
            for v in verdicts
            if v.attack != CLEAN and v.revision != known[configured(v.attack)].revision
        ),
        None,
    )
    if moved is not None:
        return f"revision {moved.revision} of {moved.attack} in the verdicts, another in the run"
    again = summarise_audit(facts, verdicts, flags)
    for name in ("settings", "subject"):
        mine, run = getattr(results, name).model_dump(), getattr(again, name).model_dump()
        for key, value in mine.items():
            if value != run[key]:
                return f"{name}.{key} is {value!r}, the run has {run[key]!r}"
    fatal = [sorted({flag.name for flag in r.flags if flag.fatal}) for r in (results, again)]
    if fatal[0] != fatal[1]:
        return f"its fatal flags are {fatal[0]}, the run has {fatal[1]}"
    return _numbers(results, again)


def _numbers(results: Results, again: Results) -> str:
    if len(results.budgets) != len(again.budgets):
        return f"it has {len(results.budgets)} budgets, the run {len(again.budgets)}"
    pairs: list[tuple[str, Accuracy | None, Accuracy | None]] = []
    pairs.append((CLEAN, results.clean, again.clean))
    for mine, run in zip(results.budgets, again.budgets, strict=True):
        rows = [_rows(mine), _rows(run)]
        names = [[name for name, _ in side] for side in rows]
        if names[0] != names[1]:
            return f"its rows are {', '.join(names[0])}, the run has {', '.join(names[1])}"
        pairs += [(name, said, found) for (name, said), (_, found) in zip(*rows, strict=True)]
    for name, said, found in pairs:
        if said != found:
            return f"{name} has {_words(said)}, the verdicts say {_words(found)}"
    for mine, run in zip(results.budgets, again.budgets, strict=True):
        for row, other in zip(mine.attacks, run.attacks, strict=True):
            for key, value in row.model_dump().items():
                if value != (there := getattr(other, key)) and key != "robust":
                    return f"{row.name}.{key} is {value!r}, the run has {there!r}"
    for part in ("budgets", "curve", "rounds", "classes"):
        if getattr(results, part) != getattr(again, part):
            return f"its {part} do not follow from the verdicts"
    return ""


def _rows(result: BudgetResult) -> list[tuple[str, Accuracy | None]]:
    rows: list[tuple[str, Accuracy | None]] = [(row.name, row.robust) for row in result.attacks]
    return rows + [(row.name, row.robust) for row in result.ensembles]


def _words(accuracy: Accuracy | None) -> str:
    return "no number" if accuracy is None else f"{accuracy.count} of {accuracy.images}"
