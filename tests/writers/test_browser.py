"""Pages in a real browser: the policy holds, tables sort, examples filter and enlarge by keys."""

import csv
import io
import re
from xml.etree import ElementTree

import pytest

from robust0.auditing.rundata import read_run
from robust0.writers.html import render
from tests.auditing.factory_report import Recipe, make_run
from tests.writers.browser import CHROMIUM, Browser
from tests.writers.test_html import hostile, page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
ROWS = "[...document.querySelectorAll('.classes tbody tr')].map((row) => row.cells[0].textContent)"
CARDS = "[...document.querySelectorAll('ul.gallery li:not([hidden])')]"


def visit(server, text):
    """What a page asks the server for, and what the browser complains of."""
    server.expect_request("/report.html").respond_with_data(
        text, content_type="text/html; charset=utf-8"
    )
    with Browser(server.url_for("/report.html")) as browser:
        said = browser.ask("document.body.textContent")
    asked = [request.path for request, _ in server.log]
    server.clear()
    return asked, browser.complaints, said


def test_a_browser_asks_for_nothing_else_and_complains_of_nothing(tmp_path, httpserver):
    evil = httpserver.url_for("/evil")
    classes = (
        f"<img src={evil}>",
        f"<link rel=stylesheet href={evil}>",
        "<script>throw 1</script>",
    )
    text = page(tmp_path, hostile(classes=classes, model=f"<iframe src={evil}>"))
    asked, complaints, said = visit(httpserver, text)
    assert asked == ["/report.html"]
    assert complaints == []
    assert "Accuracy over budgets" in said
    # Escaping alone must do it: the same without the policy that would stop a request.
    bare = re.sub(r"<meta http-equiv=.*?>", "", text)
    assert "Content-Security-Policy" not in bare
    assert visit(httpserver, bare)[:2] == (["/report.html"], [])
    # And the watch sees what it should: a page that asks and complains, and a policy that stops it.
    more = f"<img src={evil}><script>console.error(1)</script></body>"
    asked, complaints, _ = visit(httpserver, bare.replace("</body>", more))
    assert "/evil" in asked
    assert complaints
    asked, complaints, _ = visit(httpserver, text.replace("</body>", more))
    assert asked == ["/report.html"]
    assert sum("Content Security Policy" in line for line in complaints) == 2


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page whose second class is called like a formula, in English and in markup."""
    folder = tmp_path_factory.mktemp("browser")
    recipe = Recipe(budgets=(4, 2), images=90, classes=("bee", '=1+1,"<b>', "ant"))
    run = read_run(make_run(folder / "run", recipe))
    path = folder / "report.html"
    path.write_text(render(run), encoding="utf-8")
    return path, run


@pytest.mark.slow
def test_tables_sort_and_are_saved(written):
    with Browser(written[0]) as browser:
        first = browser.ask(ROWS)
        browser.click(".classes th:first-child button")
        assert browser.ask(ROWS) == sorted(first)
        browser.click(".classes th:first-child button")
        assert browser.ask(ROWS) == sorted(first, reverse=True)
        assert browser.ask("document.querySelector('.classes th').ariaSort") == "descending"
        browser.click(".classes th:last-child button")
        shares = [float(share.split()[0]) for share in browser.ask(ROWS.replace("[0]", "[4]"))]
        assert shares == sorted(shares, reverse=True)
        # The rows of ensembles stay below the attacks, however those are sorted.
        browser.click("#budget-4 + .scroll th:first-child button")
        body = "document.querySelector('#budget-4 + .scroll tbody:last-child').className"
        assert browser.ask(body) == "sum"
        browser.click(".scroll:has(.classes) + .tools button")
        name, text = browser.downloaded()
        assert name == "robust0-classes.csv"
        head, *rows = csv.reader(io.StringIO(text))
        assert head == ["class", "images", "clean", "worst-case"]
        assert {row[0] for row in rows} == {"bee", "ant", "'=1+1,\"<b>"}
        assert {row[1] for row in rows} == {"30"}
        assert all(0 <= float(cell) <= 100 for row in rows for cell in row[2:])
        assert browser.complaints == []


@pytest.mark.slow
def test_figures_say_their_values_and_are_saved(written):
    with Browser(written[0]) as browser:
        assert browser.ask("document.querySelector('.tip').hidden")
        browser.hover("svg.curve .hit:nth-of-type(2)")
        assert re.match(r"\d pixels?: [\d.]+ % still right", browser.ask(
            "document.querySelector('.tip').textContent"))  # fmt: skip
        browser.ask("document.querySelector('svg.curve').focus()")
        browser.press("ArrowRight")
        said = browser.ask("document.querySelector('.tip').textContent")
        browser.press("ArrowRight")
        assert browser.ask("document.querySelector('.tip').textContent") != said
        browser.click("figure.sheet + .tools button")
        name, text = browser.downloaded()
        assert name == "robust0-curve.svg"
        root = ElementTree.fromstring(text)
        space = "{http://www.w3.org/2000/svg}"
        lines = [node.get("stroke") for node in root.iter(f"{space}path")]
        assert any(stroke.startswith("rgb(") for stroke in lines)
        assert "var(" not in text
        assert not [node for node in root.iter() if node.get("style") or node.get("class") == "hit"]
        assert browser.complaints == []


@pytest.mark.slow
def test_examples_filter_and_enlarge_by_keys(written):
    path, run = written
    with Browser(path) as browser:
        assert browser.ask(f"{CARDS}.length") == 24
        assert browser.ask(f"{CARDS}.map((card) => Number(card.dataset.worst))") == [*range(24)]
        browser.choose("result", "survived")
        assert browser.ask(f"new Set({CARDS}.map((card) => card.dataset.result)).size") == 1
        assert browser.ask(f"{CARDS}[0].dataset.result") == "survived"
        browser.choose("result", "")
        browser.choose("class", "1")
        assert browser.ask(f"{CARDS}.every((card) => card.dataset.class === '1')")
        assert browser.ask(f"{CARDS}.length") > 0
        browser.choose("class", "")
        only = run.report.results.budgets[0].attacks[3].only
        browser.choose("attack", "=3")
        assert browser.ask(f"{CARDS}.length") == only > 0
        browser.choose("attack", "")
        browser.choose("order", "image")
        images = browser.ask(f"{CARDS}.map((card) => Number(card.dataset.image))")
        assert images == sorted(images)
        browser.click("ul.gallery + .tools button:last-child")
        assert browser.ask(f"{CARDS}.length") == run.report.results.clean.count

        opened = "document.querySelector('dialog').open"
        browser.ask("document.querySelectorAll('.zoomable')[1].focus()")
        assert not browser.ask(opened)
        browser.press("Enter")
        assert browser.ask(opened)
        seen = "document.querySelector('dialog #zoom-caption').textContent"
        before = browser.ask(seen)
        size = "document.querySelector('dialog img').getBoundingClientRect().width"
        assert browser.ask(size) > 250  # of 8 pixels
        rendering = "getComputedStyle(document.querySelector('dialog img')).imageRendering"
        assert browser.ask(rendering) == "pixelated"
        assert browser.ask("document.querySelectorAll('dialog img').length") == 3
        browser.press("ArrowRight")
        assert browser.ask(seen) != before
        browser.press("ArrowLeft")
        assert browser.ask(seen) == before
        browser.press("Escape")
        assert not browser.ask(opened)
        browser.click("ul.gallery li:nth-child(2) img")
        assert browser.ask(opened)
        assert browser.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_scrolls_tables_not_the_page(written, dark):
    with Browser(written[0], width=420, dark=dark) as browser:
        assert browser.ask("document.documentElement.scrollWidth") <= 420
        wide = (
            "[...document.querySelectorAll('.scroll')].some((b) => b.scrollWidth > b.clientWidth)"
        )
        assert browser.ask(wide)
        # What a table is about is read without scrolling, and no name is broken to pieces.
        box = ".map((one) => one.getBoundingClientRect())"
        captions = browser.ask(
            f"[...document.querySelectorAll('caption span')]{box}.map((b) => b.right)"
        )
        assert captions
        assert max(captions) < 420
        kinds = browser.ask(f"[...document.querySelectorAll('td.text')]{box}.map((b) => b.width)")
        assert min(kinds) > 90
        paper = browser.ask("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(15, 18, 24)" if dark else "rgb(246, 247, 249)")


@pytest.mark.slow
def test_without_scripts_everything_is_there(written):
    path, run = written
    with Browser(path, script=False) as browser:
        visible = (
            "[...document.querySelectorAll('ul.gallery li')].filter((c) => c.checkVisibility())"
        )
        assert browser.ask(f"{visible}.length") == run.report.results.clean.count
        assert browser.ask("document.querySelectorAll('button').length") == 0
        assert not browser.ask("document.querySelector('.filters').checkVisibility()")
        assert browser.ask("document.querySelector('.hit title').textContent").startswith(
            "0 pixels"
        )
