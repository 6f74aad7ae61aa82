import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.auditing.interval import accuracy
from robust0.auditing.rundata import read_run
from robust0.decision import Decision, ReplayResult
from robust0.errors import RecipeError, RunError
from robust0.gate.baseline import AttackIdentity, Baseline, BudgetBits, of_run
from robust0.gate.decide import (
    decide,
    default_metrics,
    drop_check,
    floor_checks,
    judge_replay,
    require_comparable,
)
from robust0.gate.differing import differences, loose_differences
from robust0.gate.metrics import Floor, Metric, parse_floor, parse_metric
from robust0.gate.paired import compare_pairs, drop_interval, mcnemar, smallest_drop
from tests.auditing.factory_report import Recipe, make_report, make_run

TEMPLATE = make_report(Recipe(budgets=(3, 1))).results
NAMES = ("one", "two")


def side(clean, first, second=None, **changes):
    """A baseline of two attacks at budget 3 from strings of digits."""
    second = first if second is None else second
    own = {"budgets": (3,), **changes.pop("settings", {})}
    attacks = tuple(
        AttackIdentity(name=n, kind="k", revision=1, params={"steps": 5}) for n in NAMES
    )
    ids = tuple(range(len(clean)))
    bits = BudgetBits(
        budget=3, robust={"one": first, "two": second}, ensembles={"worst-case": NAMES}
    )
    values = {
        "robust0": "0.1.0", "subject": TEMPLATE.subject, "thorough": False,
        "settings": TEMPLATE.settings.model_copy(update=own), "attacks": attacks, "ids": ids,
        "labels": ids, "clean": clean, "budgets": (bits,),
    }  # fmt: skip
    return Baseline(**{**values, **changes})


# The first call of scipy takes seconds to import.
relaxed = settings(deadline=None, max_examples=300)

bits = st.integers(5, 60).flatmap(  # fewer images cannot show a drop
    lambda n: st.tuples(*(st.text("01", min_size=n, max_size=n) for _ in range(2)))
)
points = st.sampled_from(["0", "0.1", "1", "1.0", "2.5", "10", "33.3", "100"])


@relaxed
@given(bits, points, st.sampled_from(["strict", "significant"]), st.lists(points, max_size=3))
def test_verdict_line_and_exit_code_always_agree(pair, allowed, policy, floors):
    before, after = (side("1" * len(b), b) for b in pair)
    check = drop_check(before, after, Metric("worst-case"), Fraction(allowed), policy)
    results = results_with(pair[1].count("1"), len(pair[1]))
    checks = [check, *floor_checks(results, [parse_floor(f"worst-case={f}%") for f in floors])]
    decision = decide(results, checks)
    lost, won = ([a != b and a == "01"[k] for b, a in zip(*pair, strict=True)] for k in (0, 1))
    share = Fraction(sum(lost) - sum(won), len(lost))
    p = tail(sum(lost), sum(lost) + sum(won))
    failed = 100 * share > Fraction(allowed) and (policy == "strict" or p < 0.05)
    low = any(Fraction(100 * pair[1].count("1"), len(lost)) < Fraction(f) for f in floors)
    assert check.passed is not failed
    assert decision.exit_code == (1 if failed or low else 0)
    assert decision.passed is (decision.exit_code == 0)
    assert decision.verdict.startswith("gate passed" if decision.exit_code == 0 else "gate FAILED")
    assert bool(decision.failures) is (decision.exit_code == 1)
    document = decision.document()
    assert (document["exit_code"], document["passed"]) == (decision.exit_code, decision.passed)


@relaxed
@given(st.integers(0, 50), st.integers(0, 50), points, st.booleans())
def test_a_replay_fails_only_when_it_may(newly, more, allowed, decisive):
    result = ReplayResult(
        images=100, survivors=newly + more, newly_broken=newly, newly_wrong=0, hits=3, still_hits=1
    )
    replay = judge_replay(result, Fraction(allowed), decisive=decisive)
    decision = Decision(identity="x", checks=(), replay=replay)
    assert replay.alarm is (newly > Fraction(allowed))
    assert decision.exit_code == int(replay.alarm and decisive)
    assert ("FAILED" in decision.verdict) is (decision.exit_code == 1)


def results_with(count, images):
    """Results whose worst case at budget 3 is count of images."""
    share = accuracy(count, images)
    first = TEMPLATE.budgets[0]
    rows = tuple(r.model_copy(update={"robust": share}) for r in first.ensembles)
    budget = first.model_copy(update={"ensembles": rows})
    return TEMPLATE.model_copy(update={"budgets": (budget, *TEMPLATE.budgets[1:])})


def tail(worse, discordant):
    """P(X >= worse) for X ~ Binomial(discordant, 1/2), by counting."""
    ways = sum(math.comb(discordant, k) for k in range(worse, discordant + 1))
    return ways / 2**discordant


@relaxed
@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_the_exact_one_sided_tail(worse, better):
    assert mcnemar(worse, better) == pytest.approx(tail(worse, worse + better), rel=1e-9)


def test_the_smallest_drop_is_the_first_significant_one():
    assert mcnemar(5, 0) < 0.05 <= mcnemar(4, 0)
    assert smallest_drop(1000) == 0.5
    assert smallest_drop(5) == 100
    assert smallest_drop(4) is None
    assert compare_pairs([True] * 4, [False] * 4).p >= 0.05


counts = st.tuples(*(st.integers(0, 200) for _ in range(4))).filter(any)


@relaxed
@given(counts)
def test_the_drops_interval_holds_the_drop_and_mirrors(cells):
    both, worse, better, neither = cells
    low, high = drop_interval(both, worse, better, neither)
    drop = (worse - better) / sum(cells)
    assert -1 <= low <= drop + 1e-12
    assert drop - 1e-12 <= high <= 1
    back = drop_interval(both, better, worse, neither)
    assert back == pytest.approx((-high, -low), abs=1e-12)


def test_the_drops_interval_covers_the_true_drop():
    """Exact coverage over all tables of 14 images, for probabilities with a drop of 0.2."""
    images, chances = 14, (0.5, 0.3, 0.1, 0.1)
    inside = total = 0.0
    for both, worse, better in product(range(images + 1), repeat=3):
        neither = images - both - worse - better
        if neither < 0:
            continue
        cells = (both, worse, better, neither)
        weight = math.factorial(images) * math.prod(
            chance**cell / math.factorial(cell) for chance, cell in zip(chances, cells, strict=True)
        )
        low, high = drop_interval(*cells)
        total += weight
        inside += weight * (low <= 0.2 <= high)
    assert total == pytest.approx(1)
    assert 0.93 <= inside <= 0.99


def test_the_interval_narrows_with_agreement_and_images():
    few, many = drop_interval(60, 10, 5, 25), drop_interval(600, 100, 50, 250)
    assert many[1] - many[0] < few[1] - few[0]
    paired, crossed = drop_interval(60, 5, 0, 35), drop_interval(30, 35, 30, 5)
    assert paired[1] - paired[0] < crossed[1] - crossed[0]


def test_one_image_of_a_thousand_is_a_tenth_of_a_point():
    before, after = side("1" * 1000, "1" * 1000), side("1" * 1000, "0" + "1" * 999)
    metric = Metric("worst-case")
    assert drop_check(before, after, metric, Fraction("0.1"), "strict").passed
    assert not drop_check(before, after, metric, Fraction("0.099"), "strict").passed


def test_the_same_numbers_pass_and_say_what_could_be_seen():
    one = side("1" * 1000, "1" * 600 + "0" * 400)
    check = drop_check(one, one, Metric("worst-case"), Fraction(0), "strict")
    assert check.passed
    assert check.paired.drop == 0
    assert check.paired.low < 0 < check.paired.high
    for words in ("fell by 0.0 points", "60.0 -> 60.0 %", "p = 1", "drop of 0.5 points"):
        assert words in check.message


def test_policies_differ_where_chance_can_explain_the_drop():
    before = side("1" * 100, "1" * 80 + "0" * 20)
    noisy = side("1" * 100, "0" * 12 + "1" * 68 + "1" * 8 + "0" * 12)  # 12 lost, 8 won
    clear = side("1" * 100, "0" * 12 + "1" * 68 + "0" * 20)  # 12 lost
    metric = Metric("worst-case")
    assert not drop_check(before, noisy, metric, Fraction(1), "strict").passed
    chance = drop_check(before, noisy, metric, Fraction(1), "significant")
    assert chance.passed
    assert "within chance" in chance.message
    assert not drop_check(before, clear, metric, Fraction(1), "significant").passed
    assert drop_check(before, clear, metric, Fraction(12), "strict").passed
    assert "rose by" in drop_check(clear, before, metric, Fraction(1), "strict").message


def test_images_are_paired_by_id_not_by_place():
    before = side("1110", "1100", ids=(4, 3, 2, 1), labels=(0, 1, 2, 3))
    after = side("0111", "0011", ids=(1, 2, 3, 4), labels=(3, 2, 1, 0))
    assert differences(before, after) == []
    paired = drop_check(before, after, Metric("one"), Fraction(0), "strict").paired
    assert (paired.worse, paired.better) == (0, 0)


def test_metrics_are_found_in_both_forms(tmp_path):
    run = read_run(make_run(tmp_path / "run", Recipe(budgets=(3, 1))))
    made, results = of_run(run), run.report.results
    for name in ("saa", "worst-case", "clean", "sparse-rs", "saa@1", "sparse-rs@3"):
        metric = parse_metric(name)
        drop = drop_check(made, made, metric, Fraction(0), "strict")
        (floor,) = floor_checks(results, [Floor(metric, Fraction(0))])
        assert drop.metric == floor.metric
        assert drop.value == pytest.approx(floor.value)
    assert default_metrics(results) == (Metric("saa"), Metric("worst-case"))


def test_the_default_metric_without_saa_is_the_worst_case():
    results = make_report(Recipe(attacks=("sparse-rs",))).results
    assert default_metrics(results) == (Metric("worst-case"),)


@pytest.mark.parametrize(("text", "meant"), [("saa=0.6", "saa=60"), ("saa=1", "saa=100")])
def test_a_fraction_is_no_percentage(text, meant):
    with pytest.raises(RecipeError, match="would be a floor of") as refusal:
        parse_floor(text)
    assert meant in refusal.value.hint
    assert parse_floor(f"{text}%").percent == Fraction(text.removeprefix("saa="))
    assert parse_floor("saa=60 %".replace(" ", "")) == parse_floor("saa=60")


@pytest.mark.parametrize("text", ["", "@3", "saa@", "saa@x", "saa@-1", "clean@3", "saa@³"])
def test_names_of_no_metric_are_refused(text):
    with pytest.raises(RecipeError, match="is not a metric"):
        parse_metric(text)


@pytest.mark.parametrize(
    "text", ["saa", "saa=", "saa=x", "saa=nan", "saa=inf", "saa=-1", "saa=101", "=60", "saa=1/2"]
)
def test_bad_floors_are_refused(text):
    with pytest.raises(RecipeError):
        parse_floor(text)


def test_absurd_exponents_do_not_hang():
    with pytest.raises(RecipeError):
        parse_floor("saa=1e999999999")
    assert parse_floor("saa=1e-999999999").percent == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [("nobody", "no metric 'nobody'"), ("saa@7", "no budget 7"), ("saa@0", "no budget 0")],
)
def test_unknown_metrics_name_the_known(tmp_path, name, message):
    run = read_run(make_run(tmp_path / "run"))
    made = of_run(run)
    with pytest.raises(RecipeError, match=message):
        floor_checks(run.report.results, [Floor(parse_metric(name), Fraction(1))])
    with pytest.raises(RecipeError, match=message):
        drop_check(made, made, parse_metric(name), Fraction(1), "strict")


def test_an_attack_in_a_cascade_has_no_accuracy(tmp_path):
    run = read_run(make_run(tmp_path / "run", Recipe(mode="cascade")))
    made = of_run(run)
    with pytest.raises(RecipeError, match="cascade"):
        drop_check(made, made, Metric("sparse-rs"), Fraction(1), "strict")
    with pytest.raises(RecipeError, match="cascade"):
        floor_checks(run.report.results, [Floor(Metric("sparse-rs"), Fraction(1))])
    assert drop_check(made, made, Metric("worst-case"), Fraction(1), "strict").passed


def test_a_gate_without_conditions_is_refused():
    with pytest.raises(RecipeError, match="needs a condition"):
        decide(TEMPLATE, [])


def other_settings(**changes):
    return {"settings": changes}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (other_settings(unit="feature"), "unit pixel -> feature"),
        (other_settings(effort="paper"), "effort quick -> paper"),
        (other_settings(mode="cascade"), "mode battery -> cascade"),
        (other_settings(seed=3), "seed 0 -> 3"),
        (other_settings(budgets=(3, 1)), r"budgets \[3\] -> \[3, 1\]"),
        ({"thorough": True}, "thorough False -> True"),
        ({"ids": (9, 1, 2, 3)}, "image ids: 1 only in the baseline, 1 only in the run"),
        ({"labels": (9, 1, 2, 3)}, "labels of the same images"),
        ({"subject": TEMPLATE.subject.model_copy(update={"data_fingerprint": "x"})}, "fingerprint"),
        ({"attacks": ("one", "two", 2, 5)}, "one revision 1 -> 2"),
        ({"attacks": ("one", "two", 1, 6)}, "two steps 5 -> 6"),
        ({"attacks": ("two", "one", 1, 5)}, "order of attacks"),
    ],
)
def test_what_differs_is_named_and_never_passes(changes, named):
    if "attacks" in changes:
        first, second, revision, steps = changes["attacks"]
        changes = {
            "attacks": tuple(
                AttackIdentity(name=n, kind="k", revision=revision, params={"steps": steps})
                for n in (first, second)
            )
        }
    before, after = side("1111", "1110"), side("1111", "1110", **changes)
    with pytest.raises(RunError, match=named) as refusal:
        require_comparable(before, after)
    assert refusal.value.exit_code == 2
    assert "\n" not in refusal.value.message


def test_an_attack_on_one_side_only_is_named():
    before = side("11", "11")
    attacks = (*before.attacks, AttackIdentity(name="three", kind="k", revision=1, params={}))
    more = before.budgets[0].model_copy(
        update={"robust": {**before.budgets[0].robust, "three": "11"}}
    )
    after = side("11", "11", attacks=attacks, budgets=(more,))
    assert differences(before, after) == ["attack three only in the run"]
    assert differences(after, before) == ["attack three only in the baseline"]


def test_every_difference_is_named_at_once():
    other = side("1111", "1110", settings={"seed": 3, "effort": "paper"}, thorough=True)
    found = differences(side("1111", "1110"), other)
    assert len(found) == 3


def test_hardware_may_differ():
    other = side("1111", "1110", settings={"device": "cuda", "torch": "9"})
    before = side("1111", "1110")
    require_comparable(before, other)
    assert loose_differences(before, other) == ["device cpu -> cuda", "torch 2.15.0 -> 9"]
