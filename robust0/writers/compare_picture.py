"""Pictures of a comparison, inline SVG: all curves on one, differences with their intervals."""

from markupsafe import Markup

from robust0.comparison import ComparedCurve, ComparisonResults, PairedDifference, signed
from robust0.records import Accuracy, Amount
from robust0.units import counted
from robust0.wording import interval, percent
from robust0.writers.picture import HEIGHT, WIDTH, Frame, axes, changes, path, steps, under_pointer


def comparison_svg(results: ComparisonResults) -> Markup:
    """Every subject's curve with its Wilson band, steps over the budgets."""
    frame = Frame(max(float(curve.points[-1].budget) for curve in results.curves))
    parts = axes(frame, changes(results.unit))
    parts += [_band(frame, curve) for curve in results.curves]
    parts += [_line(frame, curve) for curve in results.curves]
    places = sorted({point.budget for curve in results.curves for point in curve.points})
    parts += under_pointer(frame, [(float(place), _said(results, place)) for place in places])
    ends = "; ".join(
        f"{curve.letter} from {percent(curve.points[0].robust)} to "
        f"{percent(curve.points[-1].robust)}"
        for curve in results.curves
    )
    body = "\n".join(parts)
    return Markup(  # noqa: S704 - numbers and words of our own only
        f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="curve-title curve-text"><title id="curve-title">Accuracy over budgets'
        f'</title><desc id="curve-text">{ends}.</desc>\n{body}\n</svg>'
    )


def difference_svg(pair: PairedDifference, reach: float) -> Markup:
    """A difference as a mark and its interval as a bar, around the line of no difference."""
    low, high, here = (50 + 50 * v / reach for v in (pair.low, pair.high, pair.difference))
    kind = {1: "better", -1: "worse", 0: "even"}[pair.sign]
    return Markup(  # noqa: S704 - numbers and words of our own only
        f'<svg class="forest {kind}" viewBox="0 0 100 12" preserveAspectRatio="none" role="img" '
        f'aria-label="{signed(pair.difference)}"><rect class="zero" x="49.7" width="0.6" '
        f'height="12"/><rect class="range" x="{low:.2f}" y="4" width="{high - low:.2f}" '
        f'height="4"/><rect class="point" x="{here - 0.8:.2f}" y="1" width="1.6" height="10"/>'
        "</svg>"
    )


def _said(results: ComparisonResults, place: Amount) -> str:
    """What every curve has at a budget."""
    rows = [counted(place, results.unit)]
    for curve in results.curves:
        share: Accuracy = [p.robust for p in curve.points if p.budget <= place][-1]
        rows.append(f"{curve.letter}: {percent(share)} (95 %: {interval(share)})")
    return "\n".join(rows)


def _line(frame: Frame, curve: ComparedCurve) -> str:
    places = steps(frame, [(float(p.budget), p.robust.share) for p in curve.points])
    return f'<path class="line on-{curve.letter}" d="{path(places)}"/>'


def _band(frame: Frame, curve: ComparedCurve) -> str:
    high = steps(frame, [(float(p.budget), p.robust.high) for p in curve.points])
    low = steps(frame, [(float(p.budget), p.robust.low) for p in curve.points])
    return f'<path class="band on-{curve.letter}" d="{path([*high, *reversed(low)])} Z"/>'
