"""Numbers folded from hand-made verdicts, where every count can be checked by eye."""

import pytest

from robust0.auditing.facts import AttackFacts, Facts
from robust0.auditing.summary import summarise_audit
from robust0.records import CLEAN, Settings, Subject, Verdict

LIMIT = 100  # passes


def facts(*, mode="battery", budgets=(4,), attacks=("w", "b"), thorough=False, ensembles=None):
    subject = Subject(
        model="m", arch="a", sha256=None, method=None, dataset="d", split="test",
        data_fingerprint="f", image_ids="i", images=10, classes=3, mean=(), std=(),
    )  # fmt: skip
    settings = Settings(
        recipe="r", mode=mode, effort="quick", seed=0, budgets=budgets, unit="pixel",
        batch_size=16, search_dtype="float32", compiled=False, device="cpu", torch="2",
    )  # fmt: skip
    return Facts(
        subject=subject, settings=settings, thorough=thorough, class_names=("x", "y", "z"),
        attacks=tuple(
            AttackFacts(name=name, kind=name, revision=1, params={}, notes=(),
                        black_box=name.startswith("b"), passes=dict.fromkeys(budgets, LIMIT))
            for name in attacks
        ),
        ensembles=ensembles or {}, untested=("u",),
    )  # fmt: skip


def verdict(image, attack=CLEAN, budget=4, fooled=True, needed=3, passes=10, **more):
    budget = 0 if attack == CLEAN else budget
    return Verdict(
        image=image, label=image % 3, attack=attack, revision=1, unit="pixel", budget=budget,
        fooled=fooled, prediction=1, margin=-1.0 if fooled else 1.0, distance=4, needed=needed,
        forwards=passes, backwards=0, fragile=more.get("fragile", False),
        violation=more.get("violation", ""),
    )  # fmt: skip


def run(given, hits, *, images=10, wrong=(9,)):
    """Verdicts of a battery: ``hits`` maps (attack, budget) to {image: sites needed}."""
    found = [verdict(image, fooled=image in wrong) for image in range(images)]
    for (attack, budget), broken in hits.items():
        found += [
            verdict(image, attack, budget, fooled=image in broken, needed=broken.get(image, 4))
            for image in range(images)
            if image not in wrong
        ]
    return summarise_audit(given, found, ())


def rows(results, place=0):
    return {row.name: row for row in results.budgets[place].attacks}


def test_battery_rows_are_each_attacks_own():
    results = run(facts(), {("w", 4): {0: 2, 1: 4}, ("b", 4): {1: 1}})
    assert (results.clean.count, results.clean.images) == (9, 10)
    w, b = rows(results)["w"], rows(results)["b"]
    assert (w.attacked, w.broken, w.only, w.robust.count, w.median_distance) == (9, 2, 1, 7, 3)
    assert (b.attacked, b.broken, b.only, b.robust.count, b.median_distance) == (9, 1, 0, 8, 1)
    (worst,) = results.budgets[0].ensembles
    assert (worst.name, worst.attacks, worst.robust.count) == ("worst-case", ("w", "b"), 7)


def test_misclassified_images_count_as_not_robust():
    results = run(facts(), {("w", 4): {}, ("b", 4): {}}, wrong=(0, 1, 2))
    assert rows(results)["w"].robust.share == pytest.approx(0.7)


def test_saa_is_the_union_of_its_attacks():
    given = facts(attacks=("w", "b", "w2"), ensembles={"saa": ("w", "b")})
    hits = {("w", 4): {0: 2}, ("b", 4): {1: 1}, ("w2", 4): {2: 1}}
    counts = {e.name: e.robust.count for e in run(given, hits).budgets[0].ensembles}
    assert counts == {"saa": 7, "worst-case": 6}


def test_a_cascade_has_no_accuracy_per_attack():
    given = facts(mode="cascade", ensembles={"saa": ("b",)})
    found = [verdict(image, fooled=False) for image in range(4)]
    found += [verdict(image, "w", fooled=image == 0) for image in range(4)]
    found += [verdict(image, "b", fooled=image == 1) for image in range(1, 4)]
    results = summarise_audit(given, found, ())
    assert [row.robust for row in results.budgets[0].attacks] == [None, None]
    assert [row.attacked for row in results.budgets[0].attacks] == [4, 3]
    assert [row.only for row in results.budgets[0].attacks] == [None, None]
    # The images w broke never met b, so b's union is unknown.
    assert [e.name for e in results.budgets[0].ensembles] == ["worst-case"]
    assert results.budgets[0].ensembles[0].robust.count == 2


def test_a_hit_counts_at_every_budget_that_it_fits():
    given = facts(budgets=(8, 4), attacks=("w", "b"), ensembles={"saa": ("w",)})
    hits = {("w", 8): {0: 8, 1: 3, 2: 6}, ("w", 4): {0: 4}, ("b", 8): {5: 7}, ("b", 4): {6: 2}}
    results = run(given, hits)
    assert [rows(results, 0)[name].broken for name in "wb"] == [3, 2]
    # Image 1 fell at 8 but needs only 3 sites; image 6 fell at 4 only, which is no more than 8.
    assert [rows(results, 1)[name].broken for name in "wb"] == [2, 1]
    assert rows(results, 1)["w"].robust.count == 7
    assert (rows(results, 1)["w"].only, rows(results, 1)["w"].median_distance) == (2, 3.5)
    unions = [{row.name: row.robust.count for row in b.ensembles} for b in results.budgets]
    assert unions == [{"saa": 6, "worst-case": 4}, {"saa": 7, "worst-case": 6}]
    curve = {point.budget: point.robust.count for point in results.curve}
    assert curve == {0: 9, 2: 8, 3: 7, 4: 6, 6: 5, 7: 4, 8: 4}


def test_in_a_cascade_the_ensembles_count_every_hit_that_fits():
    given = facts(mode="cascade", budgets=(8, 4), attacks=("w",))
    found = [verdict(image, fooled=False) for image in range(4)]
    found += [verdict(image, "w", 8, fooled=image < 2, needed=3) for image in range(4)]
    found += [verdict(image, "w", 4, fooled=False) for image in range(2)]
    results = summarise_audit(given, found, ())
    assert rows(results, 1)["w"].broken == 0  # of what it met at this budget
    assert results.budgets[1].ensembles[0].robust.count == 2


def test_classes_at_the_largest_budget():
    results = run(facts(budgets=(8, 4), attacks=("w",)), {("w", 8): {0: 8, 1: 3}, ("w", 4): {2: 1}})
    assert [(c.name, c.images, c.clean, c.robust) for c in results.classes] == [
        ("x", 4, 3, 2), ("y", 3, 3, 2), ("z", 3, 3, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0] * 10 + [1] * 10, "1 of 3 classes have no image (z): the numbers"),
        ([0] * 20 + [1] * 20 + [2], "1 have fewer than a quarter of an equal share (z)"),
        ([0] * 40 + [1] * 4 + [2] * 4, ""),  # a quarter of 16
    ],
)
def test_classes_that_are_missing_or_thin_are_noted(labels, words):
    found = [
        verdict(image, fooled=False).model_copy(update={"label": label})
        for image, label in enumerate(labels)
    ]
    flags = {flag.name: flag for flag in summarise_audit(facts(), found, ()).flags}
    assert ("thin-classes" in flags) == bool(words)
    assert not words or words in flags["thin-classes"].message


def test_nothing_to_attack():
    results = run(facts(), {("w", 4): {}, ("b", 4): {}}, wrong=range(10))
    row = rows(results)["w"]
    assert (row.attacked, row.median_distance, row.median_passes, row.robust.count) == (
        0,
        None,
        None,
        0,
    )
    assert [point.robust.count for point in results.curve] == [0, 0]
    assert results.flags == ()


def test_fragile_hits_and_violations_are_counted():
    found = [verdict(image, fooled=False) for image in range(3)]
    found += [
        verdict(0, "w", fragile=True),
        verdict(1, "w", fooled=False, fragile=True),
        verdict(2, "w", fooled=False, violation="beyond the budget"),
    ]
    row = rows(summarise_audit(facts(attacks=("w",)), found, ()))["w"]
    assert (row.fragile, row.violations, row.broken) == (1, 1, 1)


def names(results):
    return [flag.name for flag in results.flags]


def test_black_box_beats_white_box_is_noted():
    assert "black-box-beats-white-box" in names(run(facts(), {("w", 4): {}, ("b", 4): {0: 1}}))
    assert "black-box-beats-white-box" not in names(
        run(facts(), {("w", 4): {0: 1}, ("b", 4): {0: 1}})
    )
    # guided-swap is both: it says nothing about gradients.
    three = facts(attacks=("w", "b", "guided-swap"))
    hits = {("w", 4): {}, ("b", 4): {0: 1}, ("guided-swap", 4): {0: 1}}
    assert "black-box-beats-white-box" in names(run(three, hits))
    assert "black-box-beats-white-box" not in names(run(three, {**hits, ("b", 4): {}}))
    # Up to 0.2 points is chance.
    few = run(facts(), {("w", 4): {}, ("b", 4): {0: 1}}, images=600)
    assert "black-box-beats-white-box" not in names(few)


@pytest.mark.parametrize(("order", "noted"), [(("w", "b"), True), (("b", "w"), False)])
def test_in_a_cascade_only_later_black_boxes_tell(order, noted):
    found = [verdict(image, fooled=False) for image in range(4)]
    alive = set(range(4))
    for attack in order:
        found += [verdict(i, attack, fooled=attack == "b" and i == 0) for i in alive]
        alive -= {0} if attack == "b" else set()
    results = summarise_audit(facts(mode="cascade", attacks=order), found, ())
    assert ("black-box-beats-white-box" in names(results)) is noted


@pytest.mark.parametrize(("passes", "noted"), [(91, True), (90, False)])
def test_hits_in_the_last_tenth_are_noted(passes, noted):
    found = [verdict(image, fooled=False) for image in range(10)]
    found += [verdict(i, "w", fooled=i == 0, passes=passes if i == 0 else LIMIT) for i in range(10)]
    results = summarise_audit(facts(attacks=("w",)), found, ())
    assert ("not-converged" in names(results)) is noted


def test_rows_that_end_early_have_an_earlier_last_tenth():
    found = [verdict(image, fooled=False) for image in range(10)]
    found += [verdict(i, "w", fooled=i == 0, passes=80) for i in range(10)]
    assert "not-converged" in names(summarise_audit(facts(attacks=("w",)), found, ()))


def test_a_union_far_below_the_best_is_noted():
    apart = run(facts(), {("w", 4): {0: 1}, ("b", 4): {1: 1}})
    assert "union-below-best" in names(apart)
    assert "union-below-best" not in names(run(facts(), {("w", 4): {0: 1}, ("b", 4): {0: 1}}))


def test_falling_at_a_smaller_budget_only_is_noted():
    given = facts(budgets=(8, 4), attacks=("w",), thorough=True)
    assert "not-monotone" in names(run(given, {("w", 8): {}, ("w", 4): {0: 1}}))
    assert "not-monotone" not in names(run(given, {("w", 8): {0: 1}, ("w", 4): {0: 1}}))
