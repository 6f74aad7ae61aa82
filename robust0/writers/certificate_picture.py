"""Pictures of a certificate, inline SVG: the curves, the bracket, how far each image is proved."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from robust0.proofs import Bracket, CertificateResults
from robust0.records import Accuracy
from robust0.wording import interval, percent, tidy
from robust0.wording import pixels as counted
from robust0.writers.picture import (
    HEIGHT,
    WIDTH,
    Frame,
    axes,
    changes,
    path,
    steps,
    ticks,
    under_pointer,
)

_LEFT, _BOTTOM, _TOP = 58, 52, 14
Points = Sequence[tuple[int, Accuracy]]


def curves_svg(results: CertificateResults) -> Markup:
    """Certified accuracy over pixels of every classifier, the headline with its Wilson band."""
    lines = [
        [(0, row.clean), *((p.pixels, p.certified) for p in row.points)]
        for row in results.classifiers
    ]
    frame = Frame(_last(lines))
    head = lines[0]
    parts = [*axes(frame, changes("pixel")), _area(frame, head, "low", head, "high", "band")]
    parts += [_line(frame, points, f"rule-{place}") for place, points in enumerate(lines[1:], 1)]
    parts.append(_line(frame, head, "rule-0"))
    names = [row.name for row in results.classifiers]
    parts += under_pointer(frame, [(x, _said(x, names, lines)) for x, _ in max(lines, key=len)])
    words = (
        f"Certified accuracy of {len(lines)} classifiers over the pixels that may change, from "
        f"{100 * head[0][1].share:.1f} % right answers down."
    )
    return _drawing("curves", "Certified accuracy", words, parts)


def bracket_svg(bracket: Bracket) -> Markup:
    """What is proved, what is not broken, and the gap between them shaded."""
    low = [(row.pixels, row.certified) for row in bracket.rows]
    high = [(row.pixels, row.attacked) for row in bracket.rows]
    frame = Frame(_last([low]))
    parts = [
        *axes(frame, changes("pixel")),
        _area(frame, low, "share", high, "share", "gap"),
        _line(frame, high, "attacked"),
        _line(frame, low, "rule-0"),
        *under_pointer(
            frame, [(x, _said(x, ("certified", "under attack"), (low, high))) for x, _ in low]
        ),
    ]
    last = bracket.rows[-1]
    words = (
        f"The truth lies between certified and attacked accuracy: at {last.pixels} pixels between "
        f"{100 * last.certified.share:.1f} % and {100 * last.attacked.share:.1f} %."
    )
    return _drawing("bracket", "Certified and under attack", words, parts)


def radii_svg(radii: Mapping[int, int]) -> Markup:
    """How many right answers are proved for exactly each number of pixels."""
    last, most = max(radii, default=0), max(radii.values(), default=1)
    room, height = WIDTH - _LEFT - 16, HEIGHT - _BOTTOM - _TOP
    wide = room / (last + 1)
    parts = []
    for radius, count in sorted(radii.items()):
        tall = height * count / most
        x, y = _LEFT + wide * radius, _TOP + height - tall
        parts.append(
            f'<rect class="bin" data-tip="" x="{x + 0.08 * wide:.1f}" y="{y:.1f}" '
            f'width="{0.84 * wide:.1f}" height="{tall:.1f}">'
            f"<title>{counted(radius)}: {count:,} images</title></rect>"
        )
        if last <= 30:
            parts.append(
                f'<text class="tick" x="{x + wide / 2:.1f}" y="{max(y - 4, 11):.1f}" '
                f'text-anchor="middle">{count}</text>'
            )
    for radius in ticks(last, 20):
        x = _LEFT + wide * (radius + 0.5)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{HEIGHT - _BOTTOM + 18}" '
            f'text-anchor="middle">{radius}</text>'
        )
    parts.append(
        f'<line class="axis" x1="{_LEFT}" y1="{HEIGHT - _BOTTOM}" x2="{WIDTH - 16}" '
        f'y2="{HEIGHT - _BOTTOM}"/><text class="label" x="{WIDTH / 2}" y="{HEIGHT - 8}" '
        'text-anchor="middle">certified radius in pixels, of images answered right</text>'
    )
    words = f"Certified radii of right answers, from 0 to {last} pixels."
    return _drawing("radii", "Certified radii", words, parts)


def _last(lines: Sequence[Points]) -> int:
    return max(points[-1][0] for points in lines)


def _said(pixels: int, names: Sequence[str], lines: Sequence[Points]) -> str:
    """What every line that reaches so far has there."""
    rows = [counted(pixels)]
    for name, points in zip(names, lines, strict=True):
        known = dict(points).get(pixels)
        if known is not None:
            rows.append(f"{tidy(name)}: {percent(known)} (95 %: {interval(known)})")
    return "\n".join(rows)


def _line(frame: Frame, points: Points, kind: str) -> str:
    places = steps(frame, [(pixels, accuracy.share) for pixels, accuracy in points])
    return f'<path class="line {kind}" d="{path(places)}"/>'


def _area(frame: Frame, low: Points, below: str, high: Points, above: str, kind: str) -> str:
    """The area between two step functions, each an attribute of its points."""
    bottom = steps(frame, [(pixels, getattr(accuracy, below)) for pixels, accuracy in low])
    top = steps(frame, [(pixels, getattr(accuracy, above)) for pixels, accuracy in high])
    return f'<path class="{kind}" d="{path([*top, *reversed(bottom)])} Z"/>'


def _drawing(name: str, title: str, words: str, parts: Sequence[str]) -> Markup:
    body = "\n".join(parts)
    return Markup(  # noqa: S704 - numbers and words of our own only
        f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="{name}-title {name}-text"><title id="{name}-title">{title}</title>'
        f'<desc id="{name}-text">{words}</desc>\n{body}\n</svg>'
    )
