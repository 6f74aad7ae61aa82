"""Small charts made of characters: percentages over epochs, survivors over work."""

from collections.abc import Mapping, Sequence

from rich.text import Text

_BLOCKS = " ▁▂▃▄▅▆▇█"


def line_chart(
    series: Mapping[str, Sequence[float | None]],
    styles: Mapping[str, str],
    *,
    width: int,
    height: int = 8,
) -> Text:
    """Percentages (0 to 1) as one coloured letter per series and point, with an axis.

    Each series is drawn with the first letter of its name; a point's letters stand side by side
    where there is room, else the later one shows.
    """
    columns = max((len(values) for values in series.values()), default=0)
    room = max(width - 7, 1)
    stride = max(1, min(6, room // max(columns, 1)))
    shown = min(columns, room // stride)
    apart = int(stride > len(series))  # side by side where there is room
    grid: list[list[tuple[str, str]]] = [[(" ", "")] * (shown * stride) for _ in range(height)]
    for number, (name, values) in enumerate(series.items()):
        for position, value in enumerate(values[columns - shown :] if columns else []):
            if value is not None:
                row = height - 1 - round(min(max(value, 0.0), 1.0) * (height - 1))
                column = position * stride + number * apart
                grid[row][column] = (name[0], styles.get(name, ""))
    chart = _with_percents(grid)
    chart.append("      ")
    for name in series:
        chart.append(name[0], style=styles.get(name, ""))
        chart.append(f" {name}   ")
    return chart


def step_chart(
    series: Mapping[str, Sequence[tuple[float, float]]],
    styles: Mapping[str, str],
    *,
    width: int,
    height: int = 11,
) -> Text:
    """Steps (place, share from 0 to 1) drawn with the letter of each series; ``*`` where they meet.

    A share holds from its place to the next one's; places are counted below.
    """
    last = max((points[-1][0] for points in series.values() if points), default=0) or 1
    columns = max(2, width - 6)
    grid: list[list[tuple[str, str]]] = [[(" ", "")] * columns for _ in range(height)]
    for letter, points in series.items():
        for column in range(columns):
            here = last * column / (columns - 1)
            value = [share for place, share in points if place <= here + 1e-9][-1]
            row = height - 1 - round(min(max(value, 0.0), 1.0) * (height - 1))
            met = grid[row][column][0] not in {" ", letter}
            grid[row][column] = ("*", "") if met else (letter, styles.get(letter, ""))
    chart = _with_percents(grid)
    below = [" "] * columns
    for place in _round_places(last):
        text, column = f"{place:g}", round((columns - 1) * place / last)
        start = min(column, columns - len(text))
        if all(cell == " " for cell in below[max(0, start - 1) : start + len(text) + 1]):
            below[start : start + len(text)] = text
    chart.append("      " + "".join(below).rstrip(), style="dim")
    return chart


def _round_places(last: float) -> list[float]:
    """0, the last place, and round numbers between them."""
    step = next(b * 10**p for p in range(19) for b in (1, 2, 5) if last <= b * 10**p * 10)
    return [0, last, *range(step, int(last), step)]


def block_curve(values: Sequence[float], width: int, height: int) -> list[str]:
    """Values (0 to 1) as a filled curve, ``height`` lines of blocks, the newest at the right."""
    recent = list(values) if len(values) <= width else _thinned(values, width)
    eighths = [round(min(max(value, 0.0), 1.0) * 8 * height) for value in recent]
    rows = range(height - 1, -1, -1)
    return ["".join(_BLOCKS[min(8, max(0, full - 8 * row))] for full in eighths) for row in rows]


def _thinned(values: Sequence[float], width: int) -> list[float]:
    last = len(values) - 1
    return [values[round(column * last / max(width - 1, 1))] for column in range(width)]


def _with_percents(grid: Sequence[Sequence[tuple[str, str]]]) -> Text:
    """The lines of a grid from 100 % down to 0 %, each after its share."""
    chart = Text()
    for row, line in enumerate(grid):
        percent = round(100 * (len(grid) - 1 - row) / (len(grid) - 1))
        chart.append(f"{percent:>3} % ", style="dim")
        for symbol, style in line:
            chart.append(symbol, style=style)
        chart.append("\n")
    return chart
