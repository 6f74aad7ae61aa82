import pytest

from robust0.auditing.plan import AuditPlan, Book
from robust0.records import CLEAN, Verdict


def verdict(image, attack=CLEAN, budget=0, fooled=False):
    return Verdict(
        image=image, label=0, attack=attack, revision=1, unit="pixel", budget=budget, fooled=fooled,
        prediction=1, margin=0.0, distance=0, needed=0, forwards=1, backwards=0, fragile=False,
        violation="",
    )  # fmt: skip


IMAGES = (5, 6, 7, 8)


@pytest.fixture
def book():
    """Image 8 is wrong when clean; a breaks 5 at 20, b breaks 6 at 20."""
    found = Book()
    found.add(verdict(image, fooled=image == 8) for image in IMAGES)
    for attack, hit in (("a", 5), ("b", 6)):
        found.add(verdict(image, attack, 20, fooled=image == hit) for image in (5, 6, 7))
    return found


def make(**changes):
    settings = {"budgets": (20, 10), "attacks": ("a", "b"), "cascade": False, "thorough": False}
    return AuditPlan(**(settings | changes))


def test_battery_meets_every_correct_image(book):
    assert make().wanted((20, "b"), IMAGES, book) == [5, 6, 7]
    assert make().due((20, "b"), IMAGES, book) == []


def test_cascade_meets_survivors(book):
    assert make(cascade=True).wanted((20, "a"), IMAGES, book) == [5, 6, 7]
    assert make(cascade=True).wanted((20, "b"), IMAGES, book) == [6, 7]


def test_smaller_budgets_meet_what_fell(book):
    assert make().wanted((10, "a"), IMAGES, book) == [5, 6]
    assert make(thorough=True).wanted((10, "a"), IMAGES, book) == [5, 6, 7]
    assert make(cascade=True).wanted((10, "a"), IMAGES, book) == [5, 6]


def test_complete_needs_every_verdict(book):
    plan = make()
    assert not plan.complete(IMAGES, book)
    for attack in ("a", "b"):
        assert not plan.complete(IMAGES, book)
        book.add(verdict(image, attack, 10) for image in (5, 6))
    assert plan.complete(IMAGES, book)
    assert not plan.complete((*IMAGES, 9), book)  # not even seen clean


def test_bound_counts_all_until_it_is_known_who_fell(book):
    plan = make()
    assert plan.bound((10, "a"), IMAGES, book) == [5, 6]
    half = Book()
    half.add(v for v in book.verdicts.values() if v.attack != "b")
    assert plan.bound((10, "a"), IMAGES, half) == [5, 6, 7]


def test_a_verdict_counts_once(book):
    before = len(book.verdicts)
    assert book.add([verdict(5, "a", 20, fooled=False)]) == []
    assert len(book.verdicts) == before
    assert book.verdicts[20, "a", 5].fooled


@pytest.mark.parametrize(
    ("cascade", "attacks", "expected"),
    [
        (False, ("x", "a", "b"), True),
        (True, ("b", "a", "x"), True),
        (True, ("x", "a", "b"), False),
        (False, ("a",), False),
    ],
)
def test_a_union_is_told_only_if_its_attacks_met_the_images(cascade, attacks, expected):
    assert make(cascade=cascade, attacks=attacks).tells(("a", "b")) is expected
