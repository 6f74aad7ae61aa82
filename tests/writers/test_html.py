import base64
import io
import re
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from robust0.auditing.rundata import read_run
from robust0.records import Flag
from robust0.wording import interval, percent
from robust0.writers.artefacts import write_all
from robust0.writers.gallery import examples, shown_hits
from robust0.writers.html import render
from robust0.writers.picture import changed_picture, curve_svg, data_uri, ticks
from tests.auditing.factory_report import Recipe, make_report, make_run

HOSTILE = (
    '"><script>alert(1)</script>',
    "<img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}\u202egnp\x1b[31m",
)
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; refuses tags that do not nest."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.words, self._open = [], [], [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def page(tmp_path, recipe=None):
    return render(read_run(make_run(tmp_path / "run", recipe)))


def hostile(**changes):
    flag = Flag(name="<u>flag</u>", fatal=True, message="</p><iframe src=//example.org>")
    words = {
        "classes": HOSTILE, "model": '<b onclick="x()">model</b>.safetensors', "flags": (flag,),
        "untested": ("<a href=javascript:alert(1)>x</a>",), "effort": "<i>quick</i>",
        "command": ("robust0", "audit", "</code><script>x</script>"), "budgets": (4, 2),
    }  # fmt: skip
    return Recipe(**{**words, **changes})


def test_names_come_out_as_text(tmp_path):
    parsed = Page(page(tmp_path, hostile()))
    assert not {"script", "iframe", "u", "a", "object", "form", "input"} & set(parsed.tags)
    assert not [a for a in parsed.attributes if a[1].startswith("on")]
    for words in ("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "{{ 7 * 7 }}",
                  '<b onclick="x()">model</b>.safetensors', "<u>flag</u>", "<i>quick</i>",
                  "<iframe src=//example.org>", "<a href=javascript:alert(1)>x</a>"):  # fmt: skip
        assert words in parsed.text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", parsed.text)


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        Recipe(budgets=(5, 3, 1), effort="paper"),
        Recipe(mode="cascade"),
        Recipe(unit="feature"),
        Recipe(channels=1),
        Recipe(channels=4),
        Recipe(images=1, wrong=()),
        Recipe(images=3, wrong=(0, 1, 2)),
        Recipe(breaks=lambda i, a, b: False),
        Recipe(breaks=lambda i, a, b: True),
        Recipe(classes=tuple(f"class {n}" for n in range(70)), images=140),
        Recipe(attacks=("sparse-rs",), untested=()),
        Recipe(size=200, images=30, first_id=0),
    ],
    ids=lambda r: f"{r.mode}-{r.unit}-{r.channels}x{r.size}-{r.images}",
)
def test_every_kind_of_run_makes_a_whole_page(tmp_path, recipe):
    parsed = Page(page(tmp_path, recipe))
    report = make_report(recipe).results
    assert percent(report.clean) in parsed.text
    for result in report.budgets:
        for row in result.ensembles:
            assert percent(row.robust) in parsed.text
            assert interval(row.robust) in parsed.text
    assert f"{recipe.images} images, seed 0" in parsed.text
    assert "upper bound" in parsed.text
    assert ("At effort quick the attacks are far" in parsed.text) is (recipe.effort == "quick")
    assert "nan" not in parsed.text.lower().split()


def test_nothing_is_loaded_from_elsewhere(tmp_path):
    text = page(tmp_path, hostile())
    parsed = Page(text)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert any(value.startswith(policy) for _, _, value in parsed.attributes if value)
    for tag, name, value in parsed.attributes:
        if name in {"src", "href", "srcset", "action", "data", "poster", "xlink:href"}:
            assert value.startswith("data:"), (tag, name)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style


def test_pictures_and_tables_can_be_read_without_seeing(tmp_path):
    parsed = Page(page(tmp_path, Recipe(budgets=(4, 2))))
    alts = [value for tag, name, value in parsed.attributes if (tag, name) == ("img", "alt")]
    assert len(alts) == parsed.tags.count("img") > 0
    assert all(alts)
    scopes = [v for tag, name, v in parsed.attributes if (tag, name) == ("th", "scope")]
    assert len(scopes) == parsed.tags.count("th")
    ids = [v for _, name, v in parsed.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    wanted = [v for _, name, v in parsed.attributes if name == "aria-labelledby"]
    assert {word for value in wanted for word in value.split()} <= set(ids)
    assert ("html", "lang", "en") in parsed.attributes


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1])
def test_text_has_contrast_in_both_schemes(tmp_path, scheme):
    blocks = re.findall(r":root \{(.*?)\}", page(tmp_path), re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", blocks[scheme]))
    for ink in ("text", "soft", "accent", "broken"):
        for paper in ("page", "sheet", "note"):
            high, low = sorted((luminance(colours[ink]), luminance(colours[paper])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, paper)


def test_an_image_is_enlarged_pixel_by_pixel():
    image = np.random.default_rng(0).integers(0, 256, (3, 8, 6)).astype(np.float32) / 255
    uri = data_uri(image)
    assert uri.startswith("data:image/png;base64,")
    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as picture:
        assert picture.size == (6 * 16, 8 * 16)
        back = np.asarray(picture)[::16, ::16].transpose(2, 0, 1)
        assert np.array_equal(np.asarray(picture)[5::16, 7::16].transpose(2, 0, 1), back)
    assert np.array_equal(back, np.rint(image * 255).astype(np.uint8))


def test_only_changed_pixels_keep_their_colour():
    before = np.random.default_rng(0).random((3, 8, 8), dtype=np.float32)
    after = before.copy()
    after[:, 2, 3] = (1, 0, 1)
    shown = changed_picture(before, after, (before != after).any(axis=0))
    assert tuple(shown[:, 2, 3]) == (1, 0, 1)
    grey = np.delete(shown.reshape(3, -1), 2 * 8 + 3, axis=1)
    assert np.array_equal(grey[0], grey[1])
    assert grey.max() - grey.min() < 0.25


def test_a_changed_pixel_of_a_large_image_is_a_square():
    before = np.zeros((3, 224, 224), np.float32)
    after = before.copy()
    after[0, 0, 100] = 1
    shown = changed_picture(before, after, (before != after).any(axis=0))
    assert (shown[0] == 1).sum() == 3 * 5  # at the border, half of it


def test_examples_are_hits_spread_over_classes(tmp_path):
    run = read_run(make_run(tmp_path / "run", Recipe(budgets=(4, 2), images=90)))
    shown = shown_hits(run)
    assert all(v.fooled and v.budget == 4 for v in shown)
    images = [v.image for v in shown]
    assert len(images) == len(set(images))
    assert {v.label for v in shown[:3]} == {0, 1, 2}
    needed = [v.needed for v in shown if v.label == 0]
    assert needed == sorted(needed)
    cards = examples(run)
    assert len(cards) == 24
    for card, verdict in zip(cards, shown, strict=False):
        clean = run.clean.images[run.clean.rows()[verdict.image]]
        with Image.open(io.BytesIO(base64.b64decode(card.clean.partition(",")[2]))) as picture:
            assert np.array_equal(np.asarray(picture)[::16, ::16], clean.transpose(1, 2, 0))
        assert int(card.changed.split()[0]) <= verdict.needed
        assert card.label != card.prediction


def test_a_run_that_keeps_few_clean_images_shows_those(tmp_path):
    from robust0.auditing.finish import write_clean

    folder = make_run(tmp_path / "run")
    run = read_run(folder)
    hit = shown_hits(run)[0].image
    row = run.clean.rows()[hit]
    write_clean(folder, [hit], run.clean.labels[[row]].tolist(), run.clean.images[[row]])
    assert [card.image for card in examples(read_run(folder))] == [hit]


def test_the_curve_is_a_drawing_that_falls():
    results = make_report(Recipe(budgets=(5, 2))).results
    root = ElementTree.fromstring(str(curve_svg(results)))
    path = next(node for node in root.iter("path") if node.get("class") == "line").get("d")
    places = [tuple(map(float, p.split())) for p in re.findall(r"[ML]([\d. ]+\d)", path)]
    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(places))
    assert len(places) == 2 * len(results.curve)
    text = " ".join(node.text for node in root.iter("text"))
    assert "pixels the attacker may change" in text
    assert "images still right (%)" in text
    marks = [node.get("class") for node in root.iter() if (node.get("class") or "")[:4] == "mark"]
    assert sorted(marks) == ["mark saa", "mark saa", "mark worst-case", "mark worst-case"]


@pytest.mark.parametrize("largest", [0, 1, 7, 20, 137, 3000, 10**6])
def test_ticks_are_few_and_start_at_zero(largest):
    marks = ticks(largest)
    assert marks[0] == 0
    assert marks[-1] <= largest
    assert 1 <= len(marks) <= 11


def test_equal_runs_make_equal_pages(tmp_path):
    folder = make_run(tmp_path / "run", hostile())
    paths = write_all(folder)
    first = [path.read_bytes() for path in paths]
    assert [path.name for path in paths] == ["report.html", "report.md", "report.junit.xml"]
    assert [path.read_bytes() for path in write_all(folder)] == first


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom",
]  # fmt: skip


def browse(server, text, folder):
    """Open a page in Chromium; its requests to the server and its console messages."""
    server.expect_request("/report.html").respond_with_data(
        text, content_type="text/html; charset=utf-8"
    )
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", server.url_for("/report.html")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    asked = [request.path for request, _ in server.log]
    server.clear()
    return asked, console, done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_asks_for_nothing_else_and_complains_of_nothing(tmp_path, httpserver):
    evil = httpserver.url_for("/evil")
    classes = (
        f"<img src={evil}>",
        f"<link rel=stylesheet href={evil}>",
        "<script>throw 1</script>",
    )
    text = page(tmp_path, hostile(classes=classes, model=f"<iframe src={evil}>"))
    asked, console, dom = browse(httpserver, text, tmp_path)
    assert asked == ["/report.html"]
    assert console == []
    assert "Accuracy over budgets" in dom
    # Escaping alone must do it: the same without the policy that would stop a request.
    bare = re.sub(r"<meta http-equiv=.*?>", "", text)
    assert "Content-Security-Policy" not in bare
    assert browse(httpserver, bare, tmp_path)[:2] == (["/report.html"], [])
    # And the watch sees what it should: a page that asks and complains.
    loud = bare.replace("</body>", f"<img src={evil}><script>console.error(1)</script></body>")
    asked, console, _ = browse(httpserver, loud, tmp_path)
    assert "/evil" in asked
    assert console
