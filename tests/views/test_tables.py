"""Tables on narrow terminals: no word and no id is broken."""

import re

import pytest

from robust0.cli.app import run
from robust0.zoo.fetch import find_card


def card(name):
    return find_card(name, None).card


@pytest.mark.parametrize("width", [160, 100, 60])
def test_zoo_list_breaks_no_word_at_any_width(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.delenv("ROBUST0_ZOO", raising=False)
    assert run(["zoo", "list", "--output-format", "rich"]) == 0
    text = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    words = text.split()
    assert "cifar10-w16-e14-fast-ls-l0" in words
    assert str(card("cifar10-w16-e14-fast-ls-l0").score("worst-case").percent) in words
    assert ("preact_resnet18_w16" in words) is (width == 160)  # else left out
    lines = text.rstrip().splitlines()
    rows = [line for line in lines if re.match(r" (cifar10|gtsrb)-", line)]
    (voting,) = [line.split() for line in rows if "cifar10-votes25-e120" in line]
    proved = card("cifar10-votes25-e120").certificate.certified
    shown = [score.budget for score in proved if str(score.percent) in voting]
    assert shown == ([5] if width > 60 else [])  # at the budget of the card
    assert lines[-len(rows) :] == rows  # none is folded
