"""Pictures of characters: each cell is two pixels, and no changed pixel is lost."""

import io
from dataclasses import replace

from rich.console import Console

from robust0.events import HitFound
from robust0.views.halfblocks import half_blocks, has_room, hit_pictures

CLEAN = bytes(3 * 4 * 4)
HIT = HitFound("sparse-rs", 7, "cat", "dog", "1 pixel", (3, 4, 4), CLEAN, b"\xff" + CLEAN[1:])


def console(width=120, height=40, colours="truecolor"):
    return Console(
        file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=colours
    )


def test_a_cell_is_two_pixels():
    red, blue, black = (255, 0, 0), (0, 0, 255), (0, 0, 0)
    text = half_blocks([[red, blue], [black, red], [blue, blue]])
    assert text.plain == "▀▀\n▀▀"
    styles = [str(span.style) for span in text.spans]
    assert styles[0] == "#ff0000 on #000000"
    assert styles[1] == "#0000ff on #ff0000"
    assert styles[2] == "#0000ff on #0000ff"  # an odd last row stands for both halves


def test_the_changed_pixel_is_the_only_mark():
    for shape, pixels in (((3, 4, 4), 48), ((1, 4, 4), 16), ((3, 70, 70), 3 * 4900)):
        clean = bytes(pixels)
        hit = replace(HIT, shape=shape, clean=clean, adversarial=b"\xff" + clean[1:])
        screen = console()
        screen.print(hit_pictures(hit))
        text = screen.file.getvalue()
        assert text.count("38;2;255;255;255") == (1 if shape[0] == 3 else 2)
        assert "cat" in text
        assert "dog" in text


def test_pictures_need_true_colour_and_room():
    assert has_room(console())
    assert not has_room(console(colours="256"))
    assert not has_room(console(colours=None))
    assert not has_room(console(width=80))
    assert not has_room(console(height=24))
