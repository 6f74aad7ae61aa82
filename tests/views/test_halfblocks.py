"""Pictures of characters: each cell is two pixels, and no changed pixel is lost."""

import io
from dataclasses import replace

from rich.console import Console

from robust0.events import HitFound
from robust0.views.halfblocks import fitting_step, half_blocks, hit_pictures

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
        screen.print(hit_pictures(hit, fitting_step(screen, shape, 30)))
        text = screen.file.getvalue()
        assert text.count("38;2;255;255;255") == (1 if shape[0] == 3 else 2)
        assert "cat" in text
        assert "dog" in text


def test_a_small_picture_shows_the_pixel_that_changed():
    last = bytes(47) + b"\xff"  # the last pixel turns blue
    screen = console()
    screen.print(hit_pictures(replace(HIT, adversarial=last), 2))
    assert "48;2;0;0;255" in screen.file.getvalue()


def test_pictures_take_the_room_there_is():
    shape = (3, 32, 32)
    assert fitting_step(console(), shape, 17) == 1
    assert fitting_step(console(), shape, 16) == 2
    assert fitting_step(console(width=60), shape, 30) == 2
    assert fitting_step(console(width=60), shape, 3) is None
    assert fitting_step(console(), (3, 224, 224), 30) == 7
    assert fitting_step(console(colours="256"), shape, 30) is None
    assert fitting_step(console(colours=None), shape, 30) is None
