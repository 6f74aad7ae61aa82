"""report.html: one file that needs nothing else, every name in it escaped."""

import shlex
from dataclasses import dataclass
from itertools import accumulate

from robust0 import wording
from robust0.auditing.rundata import RunData
from robust0.records import BudgetResult, ClassRow, Report
from robust0.units import counted, plural
from robust0.writers.gallery import gallery_of
from robust0.writers.page import page
from robust0.writers.picture import curve_svg
from robust0.writers.rounds_picture import rounds_svg

_MOST_NAMED = 60  # classes with a bar each; the rest is in report.json


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the bar that shows where all images went, in percent."""

    name: str
    kind: str
    start: float
    percent: float
    count: int


def render(run: RunData) -> str:
    """The page of a run."""
    results = run.report.results
    budgets = results.budgets
    return page(
        "report.html.j2",
        title=f"robust0 audit: {wording.tidy(results.subject.model, 80)}",
        results=results,
        run=run.report.run,
        largest=budgets[0] if budgets else None,
        identity=wording.identity(results),
        choice=wording.choice(results),
        captions={result.budget: wording.identity(results, result.budget) for result in budgets},
        allowed={result.budget: _allowed(result) for result in budgets},
        meaning=wording.meaning(results),
        parts=_parts(run.report),
        curve=curve_svg(results) if results.curve else None,
        curve_rows=_curve_rows(run.report),
        rounds=rounds_svg(results),
        round_heads=wording.ROUNDS,
        round_rows=wording.rounds(results),
        convergence=wording.convergence(results) if results.rounds else "",
        gallery=gallery_of(run),
        units=plural(results.settings.unit),
        columns=wording.columns(results.settings.unit),
        classes=results.classes[:_MOST_NAMED],
        hidden_classes=max(0, len(results.classes) - _MOST_NAMED),
        class_share=_share,
        facts=_facts(run.report),
        command=_command(run.report.run.command),
        recipe=run.recipe,
    )


def _allowed(result: BudgetResult) -> str:
    return counted(result.budget, result.unit)


def _parts(report: Report) -> list[Part]:
    """Where all images went: right under every attack, broken by one, wrong from the start."""
    results = report.results
    images = results.clean.images
    if not results.budgets or not images:
        return []
    worst = results.budgets[0].ensembles[-1].robust
    rows = [
        ("right under every attack", "robust", worst.count),
        ("broken by an attack", "broken", results.clean.count - worst.count),
        ("wrong without any attack", "wrong", images - results.clean.count),
    ]
    starts = accumulate((count for _, _, count in rows), initial=0)
    return [
        Part(name, kind, 100 * start / images, 100 * count / images, count)
        for (name, kind, count), start in zip(rows, starts, strict=False)
    ]


def _curve_rows(report: Report) -> list[tuple[str, str, str]]:
    results = report.results
    wanted = set(wording.shown_budgets(results))
    return [
        (
            counted(point.budget, results.settings.unit),
            wording.percent(point.robust),
            wording.interval(point.robust),
        )
        for point in results.curve
        if point.budget in wanted
    ]


def _share(row: ClassRow, kind: str) -> float:
    return 100 * (row.clean if kind == "clean" else row.robust) / row.images if row.images else 0.0


def _facts(report: Report) -> list[tuple[str, list[tuple[str, str]]]]:
    """Everything that must be equal for another run to give these numbers."""
    subject, settings, run = report.results.subject, report.results.settings, report.run
    mean = ", ".join(f"{value:g}" for value in subject.mean)
    std = ", ".join(f"{value:g}" for value in subject.std)
    return [
        (
            "Model",
            [
                ("model", subject.model),
                ("architecture", subject.arch),
                ("trained with", subject.method or "unknown"),
                ("sha256 of the checkpoint", subject.sha256 or "not a file"),
                ("mean; std inside the model", f"{mean}; {std}"),
            ],
        ),
        (
            "Data",
            [
                ("dataset", f"{subject.dataset} {subject.split}"),
                ("images; classes", f"{subject.images:,}; {subject.classes:,}"),
                ("images chosen", subject.choice or "not recorded"),
                ("data fingerprint", subject.data_fingerprint),
                ("sha256 of the image ids", subject.image_ids),
            ],
        ),
        (
            "Attack run",
            [
                ("mode; effort; seed", f"{settings.mode}; {settings.effort_name}; {settings.seed}"),
                ("recipe hash", settings.recipe),
                ("images per model call", str(settings.batch_size)),
                ("search in", settings.search_dtype + (", compiled" if settings.compiled else "")),
                ("device; torch", f"{settings.device}; {settings.torch}"),
                ("processes", str(run.processes)),
                ("started; finished", f"{run.started}; {run.finished}"),
                ("seconds", wording.seconds(run.seconds)),
                ("versions", ", ".join(f"{k} {v}" for k, v in run.versions.items())),
            ],
        ),
    ]


def _command(words: tuple[str, ...]) -> str:
    return wording.tidy(shlex.join(words), 2000)
