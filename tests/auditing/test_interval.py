import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from robust0.auditing.interval import accuracy, wilson


@given(st.integers(1, 20_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(pair):
    count, images = pair
    theirs = binomtest(count, images).proportion_ci(0.95, method="wilson")
    low, high = wilson(count, images)
    assert low == pytest.approx(theirs.low, abs=1e-12)
    assert high == pytest.approx(theirs.high, abs=1e-12)
    assert 0 <= low <= count / images <= high <= 1


def test_known_interval():
    # 60 % of 1,000 images.
    assert accuracy(600, 1000).low == pytest.approx(0.569, abs=5e-4)
    assert accuracy(600, 1000).high == pytest.approx(0.630, abs=5e-4)


def test_no_images_say_nothing():
    assert wilson(0, 0) == (0.0, 1.0)
    assert accuracy(0, 0).share == 0
