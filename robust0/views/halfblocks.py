"""Small pictures made of characters: two pixels per cell, in true colour."""

from collections.abc import Sequence

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from robust0.events import HitFound

_MOST, _LEAST = 32, 8  # cells that a picture is wide
_GAP = 2
Rgb = tuple[int, int, int]
Picture = Sequence[Sequence[Rgb]]
_DARK, _MARK = (24, 24, 24), (255, 255, 255)


def fitting_step(console: Console, shape: tuple[int, int, int], lines: int) -> int | None:
    """Pixels per half cell with which three pictures and their words fit into so many lines.

    None: there is no true colour, or they would be too small to see.
    """
    _, height, width = shape
    if console.color_system != "truecolor":
        return None
    for step in range(1, max(height, width) + 1):
        cells, rows = -(-width // step), -(-height // (2 * step))
        if cells <= _MOST and 3 * cells + 2 * _GAP <= console.width and rows < lines:
            return step if cells >= min(_LEAST, width) else None
    return None


def hit_pictures(hit: HitFound, step: int) -> Table:
    """The clean image, the adversarial one, and which pixels changed, side by side.

    A cell that stands for several pixels shows one that changed, if there is any.
    """
    clean, broken = _rows(hit.clean, hit.shape), _rows(hit.adversarial, hit.shape)
    changed = [
        [_MARK if a != b else _DARK for a, b in zip(*rows, strict=True)]
        for rows in zip(clean, broken, strict=True)
    ]
    grid = Table.grid(padding=(0, _GAP))
    pictures = (clean, broken, changed)
    grid.add_row(*(half_blocks(_thinned_picture(rows, changed, step)) for rows in pictures))
    grid.add_row(
        Text(hit.label, style="green"), Text(hit.prediction, style="red"),
        Text(f"{hit.attack}, {hit.changed}", style="dim"),
    )  # fmt: skip
    return grid


def half_blocks(rows: Picture) -> Text:
    """Rows of colours as text: two rows are the foreground and background of a line of cells."""
    text = Text()
    for upper in range(0, len(rows), 2):
        below = rows[upper + 1] if upper + 1 < len(rows) else rows[upper]
        for top, bottom in zip(rows[upper], below, strict=True):
            text.append("▀", Style(color=_hex(top), bgcolor=_hex(bottom)))
        if upper + 2 < len(rows):
            text.append("\n")
    return text


def _rows(pixels: bytes, shape: tuple[int, int, int]) -> list[list[Rgb]]:
    """Bytes (C, H, W) as rows of colours; grey images are grey, other channels are left out."""
    channels, height, width = shape
    size = height * width
    planes = [pixels[c * size : (c + 1) * size] for c in range(min(channels, 3))]
    red, green, blue = planes if len(planes) == 3 else (planes[0],) * 3
    return [
        [(red[at], green[at], blue[at]) for at in range(row * width, (row + 1) * width)]
        for row in range(height)
    ]


def _thinned_picture(rows: Picture, changed: Picture, step: int) -> list[list[Rgb]]:
    """One pixel for each square of ``step`` by ``step``."""
    height, width = len(rows), len(rows[0])

    def shown(top: int, left: int) -> Rgb:
        for y in range(top, min(top + step, height)):
            for x in range(left, min(left + step, width)):
                if changed[y][x] == _MARK:
                    return rows[y][x]
        return rows[top][left]

    return [[shown(top, left) for left in range(0, width, step)] for top in range(0, height, step)]


def _hex(colour: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
