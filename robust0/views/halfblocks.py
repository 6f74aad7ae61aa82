"""Small pictures made of characters: two pixels per cell, in true colour."""

from collections.abc import Sequence

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from robust0.events import HitFound

_MOST = 32  # cells that a picture is wide at most
_ROOM = (100, 30)  # columns and lines below which there is no place for pictures
Rgb = tuple[int, int, int]
Picture = Sequence[Sequence[Rgb]]
_DARK, _MARK = (24, 24, 24), (255, 255, 255)


def has_room(console: Console) -> bool:
    """Whether pictures can be seen: true colour, and a terminal that is large enough."""
    size = console.size
    wide = size.width >= _ROOM[0] and size.height >= _ROOM[1]
    return wide and console.color_system == "truecolor"


def hit_pictures(hit: HitFound) -> Table:
    """The clean image, the adversarial one, and which pixels changed, side by side."""
    clean, broken = _rows(hit.clean, hit.shape), _rows(hit.adversarial, hit.shape)
    changed = [
        [_MARK if a != b else _DARK for a, b in zip(*rows, strict=True)]
        for rows in zip(clean, broken, strict=True)
    ]
    step = -(-hit.shape[2] // _MOST)
    grid = Table.grid(padding=(0, 2))
    grid.add_row(*(half_blocks(_thin(rows, step)) for rows in (clean, broken)),
                 half_blocks(_thin_marks(changed, step)))  # fmt: skip
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


def _thin(rows: Picture, step: int) -> list[list[Rgb]]:
    return [list(row[::step]) for row in rows[::step]]


def _thin_marks(rows: Picture, step: int) -> list[list[Rgb]]:
    """As above, but a cell is marked where any of its pixels is: none is lost."""
    height, width = len(rows), len(rows[0])
    return [
        [
            max(rows[y][x] for y in range(top, min(top + step, height))
                for x in range(left, min(left + step, width)))
            for left in range(0, width, step)
        ]
        for top in range(0, height, step)
    ]  # fmt: skip


def _hex(colour: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
