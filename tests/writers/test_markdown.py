import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robust0.gate.decide import decide, floor_checks
from robust0.gate.metrics import Floor, Metric
from robust0.records import Flag
from robust0.wording import interval, percent
from robust0.writers.markdown import escaped, failure_markdown, gate_markdown, report_markdown
from tests.auditing.factory_report import Recipe, make_report

HOSTILE = "a|b`c`<script>![x](http://e.org/x.png) @user #1 https://e.org\n# head\x1b[31m"


@pytest.mark.parametrize("mode", ["battery", "cascade"])
def test_every_number_is_there_with_what_it_names(mode):
    report = make_report(Recipe(budgets=(4, 2), mode=mode))
    text = report_markdown(report)
    results = report.results
    for result in results.budgets:
        for row in (*result.attacks, *result.ensembles):
            if row.robust is not None:
                assert percent(row.robust) in text
                assert interval(row.robust) in text
    assert f"{mode} of 4 attacks, effort quick, 4 and 2 pixels, 40 images, seed 0" in text
    assert "upper bound" in text
    assert "far from converged" in text
    assert "subsampled" in text
    for line in results.untested:
        assert line in text


@pytest.mark.parametrize("mode", ["battery", "cascade"])
def test_every_row_says_how_many_images_the_attack_met(mode):
    report = make_report(Recipe(budgets=(4, 2), mode=mode))
    smaller = report.results.budgets[1]
    assert smaller.attacks[0].attacked < report.results.budgets[0].attacks[0].attacked
    table = report_markdown(report).split("Attacks at 2 pixels")[1].split("</details>")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    place = lines[0].index("attacked")
    assert [line[place] for line in lines[2:]] == [str(row.attacked) for row in smaller.attacks]


def test_tables_are_rectangular():
    blocks = re.findall(r"(?:^\|.*\n)+", report_markdown(make_report()), re.MULTILINE)
    assert len(blocks) == 4
    for block in blocks:
        assert len({line.count("|") for line in block.splitlines()}) == 1


def test_details_are_closed():
    text = report_markdown(make_report(Recipe(budgets=(4, 2))))
    assert text.count("<details>") == text.count("</details>") == 4


def test_hostile_names_are_words():
    flag = Flag(name=HOSTILE, fatal=True, message=HOSTILE)
    recipe = Recipe(model=HOSTILE, flags=(flag,), untested=(HOSTILE,), command=("x", "```\n# y"))
    text = report_markdown(make_report(recipe))
    assert "<script>" not in text
    assert "![" not in text
    assert "@user" not in text
    assert "://" not in text
    assert "\x1b" not in text
    assert not re.search(r"^# ", text, re.MULTILINE)
    assert text.count("```") == 2


pieces = st.sampled_from(
    [*"`*_[]()<>|!@#&-+=.1 \\\n", "http://x", "www.x", "a", "1234. ", "WWW.x", "~~"]
)


@given(st.lists(pieces, max_size=12).map("".join))
def test_escaped_text_has_no_markup(text):
    shown = escaped(text)
    assert "\n" not in shown
    bare = re.sub(r"&#\d+;|\\_", "", shown)
    assert not re.search(r"[`*_\[\]<>|!@#&\\]|~~|://|www\.", bare.lower())
    assert not re.match(r"[-+=]|\d{1,9}[.)]", shown)


def test_ordinary_names_stay_readable():
    sentence = "battery of 7 attacks, effort quick (20 pixels): 1,000 images."
    assert escaped(sentence) == sentence
    assert escaped("sparse-pgd-p") == "sparse-pgd-p"
    assert escaped("preact_resnet18") == r"preact\_resnet18"


@pytest.mark.parametrize(("floor", "sign"), [(0, "✅"), (100, "❌")])
def test_a_decision_begins_with_its_verdict(floor, sign):
    results = make_report().results
    decision = decide(results, floor_checks(results, [Floor(Metric("saa"), Fraction(floor))]))
    text = gate_markdown(decision)
    assert text.startswith(f"## {sign} robust0 {decision.verdict}")
    assert text.count(sign) == 2
    assert "seed 0" in text


def test_a_gate_that_could_not_decide_is_no_pass():
    text = failure_markdown("run and baseline are <b>not</b> comparable", "audit again")
    assert text.startswith("## ❌")
    assert "<b>" not in text


def test_columns_are_named_after_the_unit_and_explained():
    text = report_markdown(make_report(Recipe(unit="row")))
    assert "| by it alone | median rows | median passes |" in text
    assert "images that no other attack broke" in text
    assert "sites" not in text
