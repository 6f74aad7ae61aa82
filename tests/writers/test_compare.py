"""The page, the JSON and the pictures of a comparison."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from PIL import Image

from robust0.cli.app import run
from robust0.commands.compare import compare_sources
from robust0.comparison import signed
from robust0.errors import RunError
from robust0.writers.compare import check_folder, write_comparison
from robust0.writers.compare_html import render_comparison
from tests.auditing.factory_report import Recipe, make_run
from tests.writers.test_html import HOSTILE, Page

FIRST = Recipe(breaks=lambda image, attack, budget: image % 4 == 0, budgets=(5, 3))
SECOND = replace(FIRST, breaks=lambda image, attack, budget: image % 5 == 0, wrong=(6,), seed=1)


def compared(*sources):
    return compare_sources([str(source) for source in sources], lambda _: None)


def page(*sources):
    found = compared(*sources)
    return found.results, render_comparison(found.results, found.sides)


@pytest.fixture
def pair(tmp_path):
    return make_run(tmp_path / "one", FIRST), make_run(tmp_path / "two", SECOND)


def test_the_page_has_every_number_and_image(pair):
    results, text = page(*pair)
    parsed = Page(text)
    for row in results.rows:
        assert row.title(results.unit) in parsed.text
        found = row.pairs[0]
        assert f"{signed(found.low)} to {signed(found.high)}" in parsed.text
    assert results.verdicts[0] in parsed.text
    assert "The searches differ seed 0 -> 1" in parsed.text
    assert len(results.separating) > 10
    for one in results.separating:
        assert f"{one.image} {one.name}" in parsed.text
    assert parsed.tags.count("li") >= len(results.separating)
    assert "A errs on the clean image" in parsed.text  # 100 to 103 are wrong in A, right in B
    assert "breaks A" in parsed.text
    assert "breaks B" in parsed.text
    pictures = [value for tag, name, value in parsed.attributes if (tag, name) == ("img", "src")]
    assert len(pictures) > len(results.separating)


def test_names_come_out_as_text(tmp_path):
    name = '<b onclick="x()">model</b>.safetensors'
    evil = replace(FIRST, classes=HOSTILE, model=name, effort="<i>quick</i>")
    one = make_run(tmp_path / "<script>alert(1)</script>", evil)
    two = make_run(tmp_path / "two", replace(SECOND, classes=HOSTILE, model=name))
    _, text = page(one, two)
    parsed = Page(text)
    assert not {"iframe", "u", "object", "form", "input"} & set(parsed.tags)
    assert parsed.tags.count("script") <= 1  # the page's own
    assert "alert(1)</script>" not in text.replace("&lt;/script&gt;", "")
    assert not [a for a in parsed.attributes if a[1].startswith("on")]
    assert not [a for a in parsed.attributes if a[1] == "style"]
    for words in (name, "<i>quick</i>", "<script>alert(1)</script>", "{{ 7 * 7 }}"):
        assert words in parsed.text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", parsed.text)


def test_nothing_is_loaded_from_elsewhere(pair):
    parsed = Page(page(*pair)[1])
    policy = next(v for t, n, v in parsed.attributes if n == "content" and "default-src" in v)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag, name, value in parsed.attributes:
        if name in {"src", "href"}:
            assert value.startswith(("data:", "#")), (tag, value)


def test_three_certificates_make_a_page_without_pictures():
    results, text = page("cifar10-votes25-e120", "cifar10-votes64-e80", "cifar10-masks9-e5")
    parsed = Page(text)
    assert results.images == 1000
    assert "Images certified in only one" in parsed.text
    assert "baselines and cards keep none" in parsed.text
    assert parsed.text.count("C - A") == 1
    assert "img" not in parsed.tags


def test_files_are_whole_repeatable_and_replace_only_a_comparison(pair, tmp_path, capsys):
    target = tmp_path / "out"
    assert run(["compare", *map(str, pair), "-o", str(target)]) == 0
    assert "compare.html" in capsys.readouterr().err
    names = sorted(path.name for path in target.iterdir())
    assert names == ["compare.html", "compare.json", "curves.png", "curves.svg"]
    document = json.loads((target / "compare.json").read_text())
    assert document["images"] == 40
    assert [side["letter"] for side in document["sides"]] == ["A", "B"]
    with Image.open(target / "curves.png") as picture:
        assert picture.size == (960, 540)
    assert ElementTree.parse(target / "curves.svg").getroot().tag.endswith("svg")
    before = {name: (target / name).read_bytes() for name in names}
    found = compared(*pair)
    write_comparison(target, found.results, found.sides)
    assert {name: (target / name).read_bytes() for name in names} == before
    with pytest.raises(RunError, match="other files"):
        check_folder(pair[0])
    assert run(["compare", *map(str, pair), "-o", str(pair[0])]) == 2
    assert not (pair[0] / "compare.json").exists()
