import base64
import io
import re
from hashlib import sha256
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
from robust0.writers.gallery import MOST, gallery_of, shown_attempts
from robust0.writers.html import render
from robust0.writers.picture import changed_picture, curve_svg, data_uri, ticks
from tests.auditing.factory_report import Recipe, clean_pixels, make_report, make_run

HOSTILE = (
    """'"></style></script><script>alert(1)</script>""",
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
    assert not {"iframe", "u", "object", "form", "input"} & set(parsed.tags)
    assert parsed.tags.count("script") == parsed.tags.count("style") == 1
    assert all(
        v.startswith("#") for tag, name, v in parsed.attributes if (tag, name) == ("a", "href")
    )
    assert not [a for a in parsed.attributes if a[1].startswith("on")]
    for words in ("</style></script><script>alert(1)</script>", "{{ 7 * 7 }}",
                  "<img src=x onerror=alert(1)>",
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
    for tag, name, value in parsed.attributes:
        if name in {"src", "href", "srcset", "action", "data", "poster", "xlink:href"}:
            assert value.startswith("#" if tag == "a" else "data:"), (tag, name)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style


def policy_of(text):
    (policy,) = [v for _, _, v in Page(text).attributes if v and v.startswith("default-src")]
    return dict(part.split(" ", 1) for part in policy.split("; "))


def hash_of(text):
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def test_the_policy_names_the_style_and_the_script_by_their_bytes(tmp_path):
    text = page(tmp_path, hostile())
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert policy_of(text) == {
        "default-src": "'none'", "img-src": "data:", "style-src": hash_of(style),
        "script-src": hash_of(script), "base-uri": "'none'", "form-action": "'none'",
    }  # fmt: skip
    assert not [a for a in Page(text).attributes if a[1] == "style"]
    assert "innerHTML" not in script


def test_the_contents_lead_to_every_section(tmp_path):
    text = page(tmp_path, Recipe(budgets=(4, 2)))
    parsed = Page(text)
    links = [v for tag, name, v in parsed.attributes if (tag, name) == ("a", "href")]
    headings = re.findall(r'<h2 id="([^"]+)"', text)
    assert links == [f"#{name}" for name in headings]
    assert {"budget-4", "budget-2", "curve", "classes", "gallery", "settings"} <= set(headings)


def test_the_curve_says_its_values(tmp_path):
    results = make_report(Recipe(budgets=(5, 2))).results
    root = ElementTree.fromstring(str(curve_svg(results)))
    said = [node.find("title").text for node in root.iter() if node.get("data-tip") is not None]
    point = results.curve[-1]
    words = f"5 pixels: {percent(point.robust)} still right (95 %: {interval(point.robust)})"
    assert words in said
    assert sum(line.startswith("sAA, ") for line in said) == 2


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


def pixels_of(uri):
    assert uri.startswith("data:image/png;base64,")
    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as picture:
        return np.asarray(picture).transpose(2, 0, 1)


def test_an_image_keeps_its_pixels_and_the_page_does_not_smooth_them(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (3, 8, 6)).astype(np.float32) / 255
    assert np.array_equal(pixels_of(data_uri(image)), np.rint(image * 255).astype(np.uint8))
    (style,) = re.findall(r"<style>(.*?)</style>", page(tmp_path), re.DOTALL)
    (rule,) = re.findall(r"\.trio img, [^{]*\.zoom img \{(.*?)\}", style)
    assert "image-rendering: pixelated" in rule


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


def test_examples_are_the_worst_first_then_survivors(tmp_path):
    run = read_run(make_run(tmp_path / "run", Recipe(budgets=(4, 2), images=90)))
    gallery = gallery_of(run)
    worst = run.report.results.budgets[0].ensembles[-1].robust
    fell = [card for card in gallery.cards if card.fell]
    assert len(fell) == run.report.results.clean.count - worst.count
    assert len(gallery.cards) == run.report.results.clean.count
    assert [card.fell for card in gallery.cards] == sorted(
        (c.fell for c in gallery.cards), reverse=True
    )
    needed = [int(card.changed.split()[0]) for card in fell]
    assert needed == sorted(needed)
    margins = [card.margin for card in gallery.cards if not card.fell]
    assert margins == sorted(margins)
    for card in gallery.cards:
        hits = {v.attack for v in run.verdicts.values() if v.image == card.image and v.fooled}
        assert {gallery.attacks[place] for place in card.broken_by} == hits
        clean = run.clean.images[run.clean.rows()[card.image]]
        assert np.array_equal(pixels_of(card.clean), clean)
        changed = (pixels_of(card.adversarial) != clean).any(axis=0).sum()
        assert changed <= int(card.changed.split()[0])
        assert (card.name != card.prediction) == card.fell


def test_an_answer_without_an_image_of_its_own_has_a_name(tmp_path):
    pixels, _ = clean_pixels(Recipe(images=20))
    recipe = Recipe(images=20, budgets=(9,), pixels=pixels, labels=np.ones(20, int))
    cards = gallery_of(read_run(make_run(tmp_path / "run", recipe))).cards
    assert {card.prediction for card in cards if card.fell} == {"cat"}


def test_a_gallery_is_capped_spread_over_classes_and_says_so(tmp_path):
    recipe = Recipe(images=400, wrong=(), breaks=lambda i, a, b: i % 4 != 0, attacks=("sparse-rs",))
    run = read_run(make_run(tmp_path / "run", recipe))
    gallery = gallery_of(run)
    assert len(gallery.cards) == MOST
    assert gallery.about == "150 of 300 images that fell, 50 of 100 that survived every attack"
    assert gallery.about in Page(render(run)).text
    counts = [sum(c.fell and c.label == label for c in gallery.cards) for label in range(3)]
    assert counts == [50, 50, 50]


def test_large_photographs_do_not_swell_a_page(tmp_path):
    recipe = Recipe(size=200, images=24, wrong=(), breaks=lambda i, a, b: i % 2 == 0)
    text = page(tmp_path, recipe)
    assert len(text) < 8_000_000
    assert 'data-result="fell"' in text
    assert 'data-result="survived"' in text


def test_a_run_that_keeps_few_clean_images_shows_those(tmp_path):
    from robust0.auditing.finish import write_clean

    folder = make_run(tmp_path / "run")
    run = read_run(folder)
    hit = shown_attempts(run)[0][0].image
    row = run.clean.rows()[hit]
    write_clean(folder, [hit], run.clean.labels[[row]].tolist(), run.clean.images[[row]])
    assert [card.image for card in gallery_of(read_run(folder)).cards] == [hit]


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
