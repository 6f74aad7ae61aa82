"""Pictures of a report, inline: images as PNG data URIs, the curve as SVG with its values."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray
from PIL import Image

from robust0.records import Accuracy, Amount, Results
from robust0.units import counted, plural
from robust0.wording import ensemble_name, interval, percent

WIDTH, HEIGHT = 1000, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 14, 52


def data_uri(image: NDArray[np.float32]) -> str:
    """An image (C, H, W) in [0, 1] as a PNG of its own size; the page enlarges it."""
    buffer = io.BytesIO()
    Image.fromarray(_rgb(image)).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def changed_picture(
    before: NDArray[np.float32], after: NDArray[np.float32], differs: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """The new colours where a pixel changed, over a faded grey copy of the clean image.

    On large images a single pixel is lost to the eye, so each is drawn as a small square.
    """
    grey = before.mean(axis=0, keepdims=True) * np.float32(0.22) + np.float32(0.39)
    shown = np.repeat(grey, len(before), axis=0)
    reach = max(before.shape[1:]) // 96
    height, width = differs.shape
    for row, column in zip(*np.nonzero(differs), strict=True):
        rows = slice(max(0, row - reach), min(height, row + reach + 1))
        columns = slice(max(0, column - reach), min(width, column + reach + 1))
        shown[:, rows, columns] = after[:, row, column][:, None, None]
    return shown


def _rgb(image: NDArray[np.float32]) -> NDArray[np.uint8]:
    """(H, W, 3) uint8; images without three channels are shown as their grey mean."""
    if len(image) != 3:
        image = np.repeat(image.mean(axis=0, keepdims=True), 3, axis=0)
    levels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    return np.ascontiguousarray(levels.transpose(1, 2, 0))


@dataclass(frozen=True, slots=True)
class Frame:
    """From budgets and shares to places in the drawing; a little room follows the last budget."""

    largest: float

    @property
    def end(self) -> float:
        """The budget at the right edge."""
        return 1.03 * max(self.largest, 1)

    def x(self, budget: float) -> float:
        """Where a budget is."""
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * budget / self.end

    def y(self, share: float) -> float:
        """Where a share is."""
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - share)


def curve_svg(results: Results) -> Markup:
    """Accuracy over budgets as steps with the Wilson band; marks where ensembles were measured.

    Steps, because what holds at a budget is still an upper bound up to the next one.
    """
    points = [(0, results.clean), *((p.budget, p.robust) for p in results.curve if p.budget > 0)]
    points.sort(key=lambda point: point[0])
    frame = Frame(points[-1][0])
    parts = axes(frame, changes(results.settings.unit))
    unit = results.settings.unit
    said = [(x, f"{counted(x, unit)}: {_words(accuracy)}") for x, accuracy in points]
    parts += [_band(frame, points), _line(frame, points), *under_pointer(frame, said)]
    for result in results.budgets:
        parts += [
            _mark(frame, result.budget, row.robust, row.name, counted(result.budget, unit))
            for row in result.ensembles
            if row.name in {"saa", "worst-case"}
        ]
    first, last = points[0], points[-1]
    description = (
        f"Accuracy falls from {100 * first[1].share:.1f} % on clean images to "
        f"{100 * last[1].share:.1f} % with {last[0]} changed "
        f"{plural(unit, last[0])}."
    )
    body = "\n".join(parts)
    return Markup(  # noqa: S704 - numbers and words of our own only
        f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="curve-title curve-text"><title id="curve-title">Accuracy over budgets'
        f'</title><desc id="curve-text">{description}</desc>\n{body}\n</svg>'
    )


def changes(unit: str) -> str:
    """What a budget allows, in words."""
    return f"{plural(unit)} the attacker may change"


def axes(frame: Frame, words: str) -> list[str]:
    """The grid, both axes and their words."""
    left, right, bottom = frame.x(0), WIDTH - _RIGHT, frame.y(0)
    parts = []
    for tenth in range(0, 11, 2):
        y = frame.y(tenth / 10)
        parts.append(f'<line class="grid" x1="{left:.1f}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{left - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">'
            f"{10 * tenth}</text>"
        )
    for budget in ticks(frame.largest):
        x = frame.x(budget)
        parts.append(
            f'<line class="axis" x1="{x:.1f}" y1="{bottom:.1f}" x2="{x:.1f}" '
            f'y2="{bottom + 5:.1f}"/>'
            f'<text class="tick" x="{x:.1f}" y="{bottom + 20:.1f}" text-anchor="middle">'
            f"{budget}</text>"
        )
    middle = (_TOP + bottom) / 2
    parts.append(
        f'<line class="axis" x1="{left:.1f}" y1="{bottom:.1f}" x2="{right}" y2="{bottom:.1f}"/>'
        f'<text class="label" x="{(left + right) / 2:.1f}" y="{HEIGHT - 8}" '
        f'text-anchor="middle">{words}</text>'
        f'<text class="label" transform="translate(16 {middle:.1f}) rotate(-90)" '
        'text-anchor="middle">images still right (%)</text>'
    )
    return parts


def ticks(largest: float, most: int = 10) -> list[int]:
    """Round numbers from 0 to the largest budget."""
    step = next(
        base * 10**power
        for power in range(19)
        for base in (1, 2, 5)
        if largest <= base * 10**power * most
    )
    return list(range(0, int(largest) + 1, step))


def steps(frame: Frame, corners: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The path of a function that keeps each value until the next budget."""
    path: list[tuple[float, float]] = []
    for budget, share in corners:
        if path:
            path.append((frame.x(budget), path[-1][1]))
        path.append((frame.x(budget), frame.y(share)))
    path.append((frame.x(frame.end), path[-1][1]))
    return path


def path(places: Sequence[tuple[float, float]]) -> str:
    """Straight lines from place to place."""
    return " ".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(places))


def under_pointer(frame: Frame, said: Sequence[tuple[float, str]]) -> list[str]:
    """What holds from each place to the next, for the pointer: columns that nobody sees."""
    ends = [*(frame.x(place) for place, _ in said[1:]), frame.x(frame.end)]
    top, bottom = frame.y(1), frame.y(0)
    return [
        f'<rect class="hit" data-tip="" x="{frame.x(place):.1f}" y="{top:.1f}" '
        f'width="{max(0, end - frame.x(place)):.1f}" height="{bottom - top:.1f}">'
        f"<title>{escape(words)}</title></rect>"
        for (place, words), end in zip(said, ends, strict=True)
    ]


def _words(accuracy: Accuracy) -> str:
    return f"{percent(accuracy)} still right (95 %: {interval(accuracy)})"


def _band(frame: Frame, points: Sequence[tuple[Amount, Accuracy]]) -> str:
    high = steps(frame, [(budget, accuracy.high) for budget, accuracy in points])
    low = steps(frame, [(budget, accuracy.low) for budget, accuracy in points])
    return f'<path class="band" d="{path([*high, *reversed(low)])} Z"/>'


def _line(frame: Frame, points: Sequence[tuple[Amount, Accuracy]]) -> str:
    places = steps(frame, [(budget, accuracy.share) for budget, accuracy in points])
    return f'<path class="line" d="{path(places)}"/>'


def _mark(frame: Frame, budget: Amount, accuracy: Accuracy, name: str, allowed: str) -> str:
    x, low, high = frame.x(budget), frame.y(accuracy.low), frame.y(accuracy.high)
    y = frame.y(accuracy.share)
    title = f"<title>{ensemble_name(name)}, {allowed}: {_words(accuracy)}</title>"
    bar = f'<line class="whisker {name}" x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}"/>'
    if name == "saa":
        size = 6
        shape = f"M{x:.1f} {y - size:.1f} L{x + size:.1f} {y:.1f} L{x:.1f} {y + size:.1f} "
        shape += f"L{x - size:.1f} {y:.1f} Z"
        return f'{bar}<path class="mark saa" data-tip="" d="{shape}">{title}</path>'
    return (
        f'{bar}<circle class="mark worst-case" data-tip="" cx="{x:.1f}" cy="{y:.1f}" r="5">'
        f"{title}</circle>"
    )
