"""The worked example of docs/certify.md runs as it is printed."""

import doctest
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "certify.md"


def test_the_examples_give_what_the_page_says():
    result = doctest.testfile(str(DOCS), module_relative=False)
    assert result.failed == 0
    assert result.attempted > 20
