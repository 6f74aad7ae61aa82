"""A report in words: how numbers are written, what each one names, and what it does not say."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from robust0.units import counted, plural

if TYPE_CHECKING:
    from robust0.proofs import CertificateResults, CertifiedClassifier, CertifySettings
    from robust0.records import (
        Accuracy,
        Amount,
        AttackRow,
        BudgetResult,
        Results,
        Settings,
        Subject,
    )

SAA = "saa"
ROUNDS = ("budget", "round", "attack", "passes", "met", "broke", "left", "95 %")
WORST_CASE = "worst-case"
_ENSEMBLES = {SAA: "sAA"}

UPPER_BOUND = (
    "Attacks give an upper bound: the true robust accuracy is at most this, and a stronger attack "
    "can only lower it."
)
INTERVALS = (
    "Intervals are 95 % Wilson intervals for the choice of images; they say nothing about attacks "
    "that were not tried."
)
CASCADE = (
    "In a cascade every attack sees only the images that the ones before it left, so no attack has "
    "an accuracy of its own."
)
CERTIFIED = (
    "Certified means proved: no change of that many pixels, in any colours, can move this "
    "classifier's answer on that image."
)
ONE_CLASSIFIER = (
    "The proof is about this very classifier (weights, views and rule) on these very images: it "
    "says nothing about the plain network inside it, other images, or changes that are not counted "
    "in pixels."
)
WRONG_TOO = "A wrong answer can be certified too; it is reported, but does not count."
CERTIFIED_INTERVALS = "Intervals are 95 % Wilson intervals for the choice of images."
_EFFORTS = {
    "smoke": "Effort smoke only shows that everything runs: its numbers say next to nothing.",
    "quick": "At effort quick the attacks are far from converged: expect lower numbers at effort "
    "standard and paper.",
    "standard": "At effort standard the attacks are not converged: expect lower numbers at effort "
    "paper.",
}


def tidy(text: str, limit: int = 200) -> str:
    """Text from a file or a user on one line, without control characters, at most ``limit`` long.

    Names reach terminals and pages: an escape sequence or a reversed line must not.
    """
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    shown = " ".join(shown.split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def shell(*words: object) -> str:
    """A command as a shell takes it, whatever its paths are called."""
    return shlex.join(["robust0", *(tidy(str(word), 4000) for word in words)])


def percent(accuracy: Accuracy) -> str:
    """The share, such as ``53.1 %``."""
    return f"{100 * accuracy.share:.1f} %"


def interval(accuracy: Accuracy) -> str:
    """The Wilson interval in percent, such as ``50.0 - 56.2``."""
    return f"{100 * accuracy.low:.1f} - {100 * accuracy.high:.1f}"


def number(value: float | None) -> str:
    """A count or a median: no needless decimals, a dash for none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def seconds(value: float | None) -> str:
    """A duration of an attack."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def ensemble_name(name: str) -> str:
    """How people write the name of an ensemble."""
    return _ENSEMBLES.get(name, tidy(name))


def images_of(facts: Subject) -> str:
    """``1,000 images of 32x32``: what a budget in pixels must be seen against."""
    shape = facts.image_shape
    size = "" if shape is None else f" of {shape[1]}x{shape[2]}"
    return f"{facts.images:,} images{size}"


def subject(results: Results) -> str:
    """The model and the data, on one line."""
    facts = results.subject
    model = " ".join(tidy(part) for part in (facts.model, facts.method or "") if part)
    return f"{model} · {tidy(facts.dataset)} {tidy(facts.split)}, {images_of(facts)}"


def choice(results: Results) -> str:
    """How the images were chosen."""
    return f"images: {tidy(results.subject.choice) or 'not recorded how they were chosen'}"


def identity(results: Results, budget: Amount | None = None) -> str:
    """What a number must name: battery, effort, budget and unit, image count, seed."""
    count = len(results.budgets[0].attacks) if results.budgets else 0
    return identity_of(results.settings, count, results.subject.images, budget)


def identity_of(settings: Settings, attacks: int, images: int, budget: Amount | None = None) -> str:
    """The same from its parts; without a budget, all of them."""
    budgets = settings.budgets if budget is None else (budget,)
    named = ", ".join(str(value) for value in budgets[:-1])
    allowed = f"{named + ' and ' if named else ''}{counted(budgets[-1], settings.unit)}"
    return (
        f"{settings.mode} of {attacks} attack{'' if attacks == 1 else 's'}, effort "
        f"{tidy(settings.effort_name)}, {allowed}, {images:,} images, seed {settings.seed}"
    )


def rounds(results: Results) -> list[tuple[str, ...]]:
    """A line per search of a converged audit, under the words of ``ROUNDS``."""
    return [
        (
            str(row.budget), str(row.number), tidy(row.attack, 40), number(row.passes),
            number(row.attacked), number(row.broken), percent(row.robust), interval(row.robust),
        )
        for row in results.rounds
    ]  # fmt: skip


def convergence(results: Results) -> str:
    """How the number of a converged audit was reached, and what its last doubling did."""
    settings, images = results.settings, results.subject.images
    own = [row for row in results.rounds if row.budget == settings.budgets[0]]
    number = max((row.number for row in own), default=1)
    last = [row for row in own if row.number == number]
    broken, most = sum(row.broken for row in last), max((row.passes for row in last), default=0)
    tolerance = settings.tolerance or 0
    limit = f"limit of {settings.max_passes:,} passes per image"
    if any(flag.name == "time-limit" for flag in results.flags):
        limit = f"limit of {settings.max_minutes:g} minutes"
    if number == 1:
        return (
            f"Not a single doubling fitted within the {limit}: nothing says that the search has "
            "converged."
            if own and own[-1].robust.count
            else "The first round left no image standing."
        )
    spent = sum(row.spent for row in own) / max(1, images)
    words = (
        f"in {number} rounds of doubling budgets, {spent:,.0f} passes per image in all and up to "
        f"{most:,} in a search of the last, whose doubling broke {broken:,} of {images:,} images "
        f"({100 * broken / max(1, images):.2g} %; tolerance {100 * tolerance:g} %)"
    )
    if broken < tolerance * images or not own[-1].robust.count:
        return f"Converged {words}."
    return f"Not converged {words}; the {limit} ended it."


def meaning(results: Results) -> list[str]:
    """The sentences without which the numbers would mislead."""
    effort = results.settings.effort
    lines = [UPPER_BOUND]
    if effort == "converged":
        lines.append(convergence(results))
    elif effort != "paper":
        unknown = f"At effort {tidy(effort)} the attacks may not be converged."
        lines.append(_EFFORTS.get(effort, unknown))
    if results.settings.changed:
        changes = tidy(", ".join(results.settings.changed), 1000)
        lines.append(
            f"The settings are not those of effort {tidy(effort)}: {changes}. They do not "
            "compare with numbers at that effort."
        )
    if results.settings.mode == "cascade":
        lines.append(CASCADE)
    return [*lines, INTERVALS]


def short_meaning(results: Results) -> str:
    """The same in a few words, for a line under the numbers."""
    effort = results.settings.effort
    known = {"smoke": "says next to nothing", "quick": "is far from converged", "paper": ""}
    known["standard"] = "is not converged"
    if effort == "converged":
        ended = any(flag.name in ("not-converged", "time-limit") for flag in results.flags)
        known[effort] = "reached its limit first" if ended else ""
    words = known.get(effort, "may not be converged")
    name = tidy(results.settings.effort_name)
    return "upper bounds" + (f"; effort {name} {words}" if words or name != effort else "")


def notes(row: AttackRow) -> str:
    """The labels an attack's row must carry, such as ``(subsampled)``; else nothing."""
    return f"({', '.join(tidy(note) for note in row.notes)})" if row.notes else ""


def columns(unit: str) -> str:
    """What the columns of a table of attacks count."""
    return (
        "By it alone: images that no other attack broke. "
        f"Median {plural(unit)}: changed {plural(unit)} of a hit, after taking back those it does "
        "not need. Passes: runs of the model, forwards or backwards, per attacked image."
    )


def headline(result: BudgetResult) -> list[tuple[str, Accuracy]]:
    """The ensembles of a budget by the names people know."""
    return [(ensemble_name(row.name), row.robust) for row in result.ensembles]


def class_names(results: Results) -> dict[int, str]:
    """Class names by label, where the report has them."""
    return {row.label: tidy(row.name, 60) for row in results.classes}


def class_name(names: dict[int, str], label: int) -> str:
    """A class by name, or by number where it has none."""
    return names.get(label) or f"class {label}"


def shown_budgets(results: Results, most: int = 9) -> list[Amount]:
    """Budgets of the curve worth a line each: those attacked, and round ones between."""
    attacked = {result.budget for result in results.budgets}
    points = [point.budget for point in results.curve]
    if len(points) <= most:
        return points
    round_ones = [b for b in points if str(b).rstrip("0") in {"1", "2", "5"} and b not in attacked]
    spare = max(0, most - len(attacked))
    kept = round_ones[-spare:] if spare else []
    return sorted({*kept, *(attacked & set(points))})


def pixels(count: int) -> str:
    """``1 pixel``, ``20 pixels``."""
    return f"{count:,} pixel{'' if count == 1 else 's'}"


def certificate_meaning(settings: CertifySettings) -> list[str]:
    """The sentences without which certified accuracies would mislead."""
    lines = [CERTIFIED, ONE_CLASSIFIER, WRONG_TOO]
    if settings.expected_false is not None:
        lines.append(
            f"Ablation proves with a probability: each certificate is false with probability "
            f"{settings.details.get('alpha')} at most, so at most {settings.expected_false:g} of "
            "all images on average."
        )
    return [*lines, CERTIFIED_INTERVALS]


def certificate_identity(results: CertificateResults) -> str:
    """What a certified accuracy must name: certificate, rule, what it rests on, image count."""
    settings = results.settings
    known = settings.details
    parts = {
        "partition-vote": f"{known.get('views')} views, {tidy(str(known.get('partition')))}",
        "masks": f"{known.get('groups')} lattices",
        "ablation": f"{known.get('keep')} of {known.get('pixels')} pixels kept, "
        f"{known.get('choose')} + {known.get('bound')} samples, alpha {known.get('alpha')}",
    }
    return (
        f"{settings.kind} certificate, {tidy(settings.headline)}, {parts[settings.kind]}, "
        f"{results.subject.images:,} images"
    )


def trials(row: CertifiedClassifier) -> str:
    """What attacks made of the certificates."""
    if not row.trials:
        return "not tried by attacks"
    parts = [
        f"{tidy(t.attack)} (effort {tidy(t.effort)}): {t.broken} of {t.tried} broken"
        for t in row.trials
    ]
    return "certificates under attack, each at its own radius: " + "; ".join(parts)
