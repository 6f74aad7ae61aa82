"""The certificate on the terminal: its answer last, on one screen; live, and when interrupted."""

import io

import pytest
from rich.console import Console

import robust0
from robust0.certify_events import CertifyFinished, CertifyProgress, CertifyStarted
from robust0.views.certificate import draw_certificate
from robust0.views.certify import LiveCertifyView
from tests.certifying.conftest import one_thread as one_thread
from tests.certifying.conftest import toy as toy

SIZE = {"legacy_windows": False, "height": 30, "force_terminal": True}


@pytest.fixture(scope="module")
def made(toy):
    return robust0.certify(toy.network, toy.images, toy.labels, (1, 2, 4))


def drawn(report, width, **how):
    console = Console(file=io.StringIO(), width=width, record=True, **SIZE)
    draw_certificate(report, console, **how)
    return console.export_text()


@pytest.mark.parametrize("width", [160, 100, 60])
def test_the_answer_comes_last_and_on_one_screen(made, width):
    page = "runs/a/" + 80 * "b" + "/report.html"
    text = drawn(made, width, where=page)
    lines = text.splitlines()
    assert len(lines) <= 30
    assert lines[-1] == f"all of it: {page}"  # whole, so that it can be copied
    assert max(map(len, lines[:-1])) <= width
    first, *others = made.results.classifiers
    assert others
    for row in others:
        assert text.index(f"\n{row.name} ") < text.index("robust0 certify · ")
    for point in (p for p in first.points if p.pixels in (1, 2, 4)):
        assert f"{100 * point.certified.share:.1f} %" in text.partition("robust0 certify · ")[2]
    assert text.count("% ") < drawn(made, width, full=True).count("% ")


def test_nothing_is_left_out_in_full(made):
    text = drawn(made, 100, full=True)
    assert "Certified means proved" in text
    assert text.count("wrong but certified") == len(made.results.classifiers) == 3


def test_a_broken_certificate_is_red(made):
    first = made.results.headline
    trial = {"attack": "x", "revision": 1, "effort": "smoke", "tried": 9, "broken": 1}
    row = first.model_validate(first.model_dump() | {"trials": [trial | {"images": (3,)}]})
    results = made.results.model_copy(update={"classifiers": (row,)})
    console = Console(file=io.StringIO(), width=100, color_system="standard", **SIZE)
    draw_certificate(made.model_copy(update={"results": results}), console)
    (line,) = (text for text in console.file.getvalue().splitlines() if "1 of 9 broken" in text)
    assert line.startswith("\x1b[1;31m")


def test_what_was_live_goes_and_an_interruption_stays(made):
    view = LiveCertifyView()
    clean = made.results.headline.clean
    view.show(CertifyStarted("a title", 96, ("plurality",), (1, 2), 0, "runs/a"))
    view.show(CertifyProgress(96, 96, (("plurality", (clean, clean, clean)),)))
    view.show(CertifyFinished(None, "runs/a", None))
    assert view.last_words() is None
    view.show(CertifyFinished(None, "runs/a b", 2))
    assert view.last_words().plain.endswith("go on with robust0 certify --resume 'runs/a b'")
    assert view.last_words().style == "bold"
