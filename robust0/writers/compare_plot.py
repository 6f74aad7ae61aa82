"""The curves of a comparison on one picture: on matplotlib's axes, or as PNG or SVG files."""

from pathlib import Path
from typing import TYPE_CHECKING

from robust0.comparison import ComparisonResults
from robust0.files import atomic
from robust0.units import plural
from robust0.wording import tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("tab:blue", "tab:orange", "tab:purple", "tab:green", "tab:red", "tab:gray", "tab:cyan",
            "tab:brown")  # fmt: skip
_LINES = ("-", "--", ":", "-.")


def draw_curves_on(results: ComparisonResults, ax: "Axes | None" = None) -> "Axes":
    """Every subject's accuracy over the budget with its 95 % band, on these or on new axes."""
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    last = max(float(curve.points[-1].budget) for curve in results.curves)
    end = 1.03 * max(last, 1.0)  # the last step has a width too
    for place, (curve, side) in enumerate(zip(results.curves, results.sides, strict=True)):
        points = [*curve.points, curve.points[-1]]
        budgets = [*(float(point.budget) for point in curve.points), end]
        shares = [
            [100 * getattr(p.robust, key) for p in points] for key in ("share", "low", "high")
        ]
        colour = _COLOURS[place % len(_COLOURS)]
        # Names are shown as they are: a dollar sign must not start a formula.
        name = f"{side.letter}  {tidy(side.source, 60)}".replace("$", r"\$")
        ax.step(budgets, shares[0], where="post", color=colour, label=name,
                linestyle=_LINES[place % len(_LINES)])  # fmt: skip
        ax.fill_between(budgets, shares[1], shares[2], step="post", color=colour, alpha=0.12,
                        linewidth=0)  # fmt: skip
    proved = results.kind == "certificate"
    ax.set(
        xlabel=f"{plural(results.unit)} the attacker may change",
        ylabel="right and certified (%)" if proved else "images still right (%), upper bound",
        ylim=(0, 100), xlim=(0, end), title=f"{results.images:,} common images",
    )  # fmt: skip
    ax.grid(alpha=0.3)
    ax.legend(fontsize="small")
    return ax


def write_curves(results: ComparisonResults, target: Path) -> None:
    """The picture, as its name ends: PNG or SVG; the same bytes for the same comparison."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    draw_curves_on(results, figure.subplots())
    form = target.suffix.removeprefix(".")
    known = {"Date": None} if form == "svg" else {"Software": "robust0"}
    with rc_context({"svg.hashsalt": "robust0"}), atomic(target) as temporary:
        figure.savefig(temporary, dpi=120, format=form, metadata=known)
