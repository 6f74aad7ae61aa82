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
    chart = Text()
    for row, line in enumerate(grid):
        percent = round(100 * (height - 1 - row) / (height - 1))
        chart.append(f"{percent:>3} % ", style="dim")
        for symbol, style in line:
            chart.append(symbol, style=style)
        chart.append("\n")
    chart.append("      ")
    for name in series:
        chart.append(name[0], style=styles.get(name, ""))
        chart.append(f" {name}   ")
    return chart


def block_curve(values: Sequence[float], width: int, height: int) -> list[str]:
    """Values (0 to 1) as a filled curve, ``height`` lines of blocks, the newest at the right."""
    recent = list(values) if len(values) <= width else _thinned(values, width)
    eighths = [round(min(max(value, 0.0), 1.0) * 8 * height) for value in recent]
    rows = range(height - 1, -1, -1)
    return ["".join(_BLOCKS[min(8, max(0, full - 8 * row))] for full in eighths) for row in rows]


def sparkline(values: Sequence[float], width: int) -> str:
    """Values (0 to 1) as a row of blocks, the newest at the right."""
    recent = list(values)[-width:] if len(values) <= width else _thinned(values, width)
    return "".join(_BLOCKS[round(min(max(value, 0.0), 1.0) * 8)] for value in recent)


def _thinned(values: Sequence[float], width: int) -> list[float]:
    last = len(values) - 1
    return [values[round(column * last / max(width - 1, 1))] for column in range(width)]
