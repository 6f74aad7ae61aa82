import hashlib
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from robust0 import upgrades
from robust0.errors import ZooError
from robust0.records import Report
from robust0.resources import shipped
from robust0.zoo.cards import Index, card_text, is_id, is_web, read_card
from robust0.zoo.documents import read_json, read_yaml, write_yaml
from robust0.zoo.roots import INDEX
from tests.zoo.conftest import NAME, digest_of

SHIPPED = sorted(path for path in shipped("model_zoo").glob("*.yaml") if path.name != INDEX)


@pytest.fixture
def path(zoo):
    return zoo / f"{NAME}.yaml"


def change(path, **values):
    document = yaml.safe_load(path.read_text())
    for key, value in values.items():
        *way, last = key.split("__")
        part = document
        for word in way:
            part = part[word]
        part[last] = value
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def test_a_card_survives_writing_and_reading(path):
    card = read_card(path, NAME)
    assert card_text(card) == path.read_text()
    assert card.audit.clean.percent == 90.0
    assert card.score("saa").budget == 3
    assert card.score("saa", 4) is None
    assert card.score("nothing") is None


def test_numbers_are_those_of_the_report(zoo, path):
    report = read_json(zoo / f"{NAME}.report.json", Report, upgrades.report)
    assert read_card(path, NAME).problems(report) == []
    union = report.results.budgets[0].ensembles[0]
    assert read_card(path, NAME).score(union.name).percent == round(100 * union.robust.share, 1)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("audit__clean", {"percent": 95.0, "low": 90.0, "high": 99.0}, "95.0 % here"),
        ("audit__seed", 1, "audit.seed"),
        ("audit__effort", "paper", "audit.effort"),
        ("audit__images", 41, "audit.images"),
        ("sha256", "0" * 64, "sha256"),
        ("method", "standard", "method"),
        ("architecture", "resnet18", "architecture"),
    ],
)
def test_a_card_that_says_something_else(zoo, path, key, value, words):
    change(path, **{key: value})
    report = read_json(zoo / f"{NAME}.report.json", Report, upgrades.report)
    problems = read_card(path, NAME).problems(report)
    assert len(problems) == 1
    assert words in problems[0]


def test_a_better_score_than_the_report_has(zoo, path):
    card = read_card(path, NAME)
    rows = [row.model_dump() for row in card.audit.robust]
    rows[-1] |= {"percent": 80.0, "high": 99.0}
    del rows[0]
    change(path, audit__robust=rows)
    problems = read_card(path, NAME).problems(
        read_json(zoo / f"{NAME}.report.json", Report, upgrades.report)
    )
    assert len(problems) == 2
    assert "absent here" in problems[0]
    assert "worst-case at 3" in problems[1]
    assert "80.0 %" in problems[1]


HOSTILE = {
    "source": ["../x.safetensors", "/etc/x.safetensors", "x.pt", "a/b.safetensors", "..", "",
               ".x.safetensors", "http://example.org/x.safetensors", "file:///x.safetensors",
               "https://me:pw@example.org/x", "x.safetensors\n", "https://e.org/\x1b[2J",
               "https://e.org\\@f.org/x"],
    "report": ["../r.json", "/r.json", "r.yaml", "a\\b.json", "r.json\n", ".r.json"],
    "verdicts": ["../../x.json"],
    "id": ["../x", "UPPER", "a/b", ".hidden", "", "a" * 101, "index", "a\n"],
    "title": ["\x1b[31mred", "two\nlines", "", "x" * 2001, 5, None],
    "training_command": ["rm\x00"],
    "sha256": ["ab" * 31, "AB" * 32, "zz" * 32],
    "size": [0, -1, "12", 1.5, True],
    "schema": [0, "1", None, True],
    "audit__clean": [{"percent": 90.04, "low": 80.0, "high": 99.0},
                     {"percent": 101.0, "low": 80.0, "high": 101.0},
                     {"percent": 70.0, "low": 80.0, "high": 99.0}],
    "audit__mode": ["other"],
    "audit__threads": [0],
    "surprise": [1],
    "date": ["yesterday"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in HOSTILE.items() for value in values]
)
def test_hostile_cards_are_refused(path, key, value):
    change(path, **{key: value})
    with pytest.raises(ZooError) as refusal:
        read_card(path, NAME)
    assert refusal.value.message.isprintable()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\na: 2\n", "twice"),
        ("a: &x 1\nb: *x\n", "anchors"),
        ("a: !!python/object:os.system x\n", "tags"),
        ("? [a, b]\n: 1\n", "not a word"),
        ("[" * 30 + "]" * 30, "nested deeper"),
        ("a: .nan\n", "valid YAML"),
        ("a: [1\n", "valid YAML"),
        ("- 1\n", "the whole"),
        ("", "the whole"),
        ("a: 1\n", "does not say schema: 2"),
        ("schema: 3\n", "schema 3, this robust0 reads 2"),
        ("a: 2020-01-01 10:00:00\n", "no place"),
        ("x" * 250_001, "more than"),
        ("<<: {a: 1}\n", "not a word"),
    ],
)
def test_files_that_are_no_cards(tmp_path, text, words):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(ZooError, match=words):
        read_card(path, "x")


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ZooError, match="not UTF-8"):
        read_card(path, "x")


def test_a_card_under_another_name(path, zoo):
    path.rename(zoo / "other.yaml")
    with pytest.raises(ZooError, match=f"is the card of {NAME}, expected other"):
        read_card(zoo / "other.yaml", "other")


@given(st.text(max_size=110))
def test_ids_never_leave_a_folder(text):
    if is_id(text):
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", text)
        assert "/" not in text
        assert "\\" not in text
        assert text not in (".", "..", "index")


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("https://example.org/zoo", True),
        ("http://127.0.0.1:80/zoo", True),
        ("http://localhost/zoo", True),
        ("http://[::1]/zoo", True),
        ("http://example.org/zoo", False),
        ("http://127.0.0.1.example.org/", False),
        ("https://", False),
        ("https://example.org:x/", False),
        ("https://e.org/?a=1", False),
        ("https://e.org/#a", False),
        ("https://a@e.org/", False),
        ("ftp://e.org/", False),
        ("https://[::1/", False),
    ],
)
def test_web_addresses(text, good):
    assert is_web(text) is good


# --- what this installation ships ---------------------------------------------------------------


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_cards_equal_their_reports(path):
    card = read_card(path, path.stem)
    report = path.parent / card.report
    assert card.problems(read_json(report, Report, upgrades.report)) == []
    assert digest_of(report) == card.report_sha256
    assert digest_of(path.parent / card.verdicts) == card.verdicts_sha256
    if not is_web(card.source):
        data = (path.parent / card.source).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (card.sha256, card.size)
        assert card.size <= 4_000_000


def test_shipped_files_are_small_listed_and_known():
    folder = shipped("model_zoo")
    files = [path for path in folder.iterdir() if path.name not in ("README.md", INDEX)]
    assert sum(path.stat().st_size for path in files) <= 35_000_000
    ends = ("yaml", "safetensors", "report.json", "verdicts.json", "radii.json")
    expected = {f"{path.stem}.{end}" for path in SHIPPED for end in ends}
    assert {path.name for path in files} <= expected
    if SHIPPED:
        index = read_yaml(folder / INDEX, Index)
        assert {name: entry.sha256 for name, entry in index.cards.items()} == {
            path.stem: digest_of(path) for path in SHIPPED
        }


def test_an_index_survives_writing_and_reading(zoo):
    index = read_yaml(zoo / INDEX, Index)
    assert set(index.cards) == {NAME}
    assert write_yaml(index) == (zoo / INDEX).read_text()
