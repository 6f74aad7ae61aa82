"""Accuracy over budgets on matplotlib's axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robust0 import wording
from robust0.units import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from robust0.records import Results


def draw_curve(results: Results, ax: Axes | None = None) -> Axes:
    """The curve of all hits with its 95 % band, and the named groups at the budgets attacked."""
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    shares = [(0, results.clean), *((point.budget, point.robust) for point in results.curve)]
    shares = sorted(dict(shares).items())
    budgets = [budget for budget, _ in shares]
    ax.plot(budgets, [100 * a.share for _, a in shares], marker=".", label="every hit")
    low, high = [100 * a.low for _, a in shares], [100 * a.high for _, a in shares]
    ax.fill_between(budgets, low, high, alpha=0.2, label="95 % interval")
    for place, name in enumerate(row.name for row in results.budgets[0].ensembles):
        rows = [
            (result.budget, row.robust)
            for result in results.budgets
            for row in result.ensembles
            if row.name == name
        ]
        ax.plot(
            [budget for budget, _ in rows], [100 * a.share for _, a in rows], "os"[place % 2],
            fillstyle="none", label=wording.ensemble_name(name),
        )  # fmt: skip
    unit = results.settings.unit
    ax.set(
        xlabel=f"changed {plural(unit)}", ylabel="robust accuracy (%), upper bound", ylim=(0, 100),
        title=wording.subject(results),
    )  # fmt: skip
    ax.legend()
    return ax
