"""The bracket as a picture of its own, for slides and pages: PNG or SVG by the file's name."""

from pathlib import Path

from robust0.files import atomic
from robust0.proofs import CertificateResults
from robust0.wording import tidy
from robust0.writers.picture import ticks


def draw_bracket(results: CertificateResults, target: Path) -> None:
    """Certified below, under attack above, the gap in which the truth lies shaded."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    bracket = results.bracket
    if bracket is None:
        raise ValueError("there is no bracket to draw")
    rows = [*bracket.rows, bracket.rows[-1]]  # the last step has a width too
    pixels = [*range(len(bracket.rows)), len(bracket.rows) - 0.5]
    low = [100 * row.certified.share for row in rows]
    high = [100 * row.attacked.share for row in rows]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.fill_between(pixels, low, high, step="post", color="tab:blue", alpha=0.18)
    attacks = ", ".join(tidy(name, 40) for name in bracket.attacks)
    under = f"under attack ({attacks}; effort {tidy(bracket.effort, 40)})"
    axes.step(pixels, high, where="post", color="tab:red", label=under)
    proved = f"certified ({tidy(bracket.classifier, 40)})"
    axes.step(pixels, low, where="post", color="tab:green", label=proved)
    axes.set(
        xlabel="pixels the attacker may change",
        ylabel="images still right (%)",
        ylim=(0, 100),
        xlim=(0, pixels[-1]),
        xticks=ticks(len(bracket.rows) - 1),
    )
    axes.grid(alpha=0.3)
    axes.legend(title="the truth lies between", fontsize="small")
    # Names are shown as they are: a dollar sign must not start a formula.
    title = f"{tidy(results.subject.model, 60)}, {results.subject.images:,} images"
    axes.set_title(title.replace("$", r"\$"))
    form = target.suffix.removeprefix(".")
    known = {"Date": None} if form == "svg" else {"Software": "robust0"}
    with rc_context({"svg.hashsalt": "robust0"}), atomic(target) as temporary:
        figure.savefig(temporary, dpi=120, format=form, metadata=known)
