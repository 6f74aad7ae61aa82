"""Survivors of a converged audit over the passes it spent, attack by attack and round by round."""

from collections.abc import Iterator

from markupsafe import Markup

from robust0.records import Amount, Results
from robust0.writers.picture import HEIGHT, WIDTH, Frame, axes, path, under_pointer


def survivors(results: Results, budget: Amount) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Each search by name: passes per image of the run so far, and the share still standing.

    A search has a point at its start and at every quarter of its passes.
    """
    images = max(1, results.subject.images)
    spent = 0.0
    for row in results.rounds:
        if row.budget != budget:
            continue
        standing, cost = row.robust.count + row.broken, row.spent / images
        points = [
            (spent + part / 4 * cost, (standing - broken) / images)
            for part, broken in enumerate((0, *row.quarters))
        ]
        spent += cost
        yield f"{row.attack}, round {row.number}", points


def rounds_svg(results: Results) -> Markup | None:
    """The curve at the largest budget; searches take turns in colour."""
    searches = list(survivors(results, results.settings.budgets[0]))
    if not searches:
        return None
    frame = Frame(max(searches[-1][1][-1][0], 1))
    parts = axes(frame, "passes per image of the run")
    for place, (_, points) in enumerate(searches):
        line = path([(frame.x(x), frame.y(y)) for x, y in points])
        parts.append(f'<path class="line turn-{place % 4}" d="{line}"/>')
    parts += under_pointer(
        frame,
        [
            (x, f"{name}: {100 * y:.1f} % still right after {x:,.0f} passes per image")
            for name, points in searches
            for x, y in points[1:]
        ],
    )
    first, last = searches[0][1][0], searches[-1][1][-1]
    description = (
        f"Images still right fall from {100 * first[1]:.1f} % to {100 * last[1]:.1f} % over "
        f"{last[0]:,.0f} passes per image."
    )
    body = "\n".join(parts)
    return Markup(  # noqa: S704 - numbers and escaped names only
        f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="rounds-title rounds-text"><title id="rounds-title">Survivors over '
        f'passes</title><desc id="rounds-text">{description}</desc>\n{body}\n</svg>'
    )
