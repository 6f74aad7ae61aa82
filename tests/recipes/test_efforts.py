import pytest

from robust0.attacks import ATTACKS
from robust0.attacks.battery import EFFORTS, battery, budget_of, groups
from robust0.errors import RecipeError
from robust0.recipes.efforts import attack_names
from robust0.recipes.load import load_recipe
from robust0.threats import Threat


def audit(*overrides, recipe="cifar10"):
    return load_recipe(recipe, overrides=overrides).recipe.audit


def params(found):
    return {attack.name: dict(attack.params) for attack in found.attacks}


def test_every_attack_searches_longer_with_more_effort():
    for attack in ATTACKS.members().values():
        assert tuple(attack.efforts) == EFFORTS
        made = [attack(**budget_of(attack, effort)) for effort in EFFORTS]
        passes = [one.passes(Threat.of(5), (3, 8, 8), 4) for one in made]
        assert passes[:3] == sorted(passes[:3])
        assert len(set(passes[:3])) == 3


def test_groups():
    assert groups()["saa"] == ("sparse-pgd-p", "sparse-pgd-u", "sparse-rs")
    assert groups()["worst-case"][0] == "guided-swap"
    assert groups()["worst-case"][-1] == "corner-search"
    for group in ("all", "worst-case"):
        assert sorted(groups()[group]) == sorted(battery())


def test_names_and_groups_are_counted_once():
    assert attack_names(["saa", "sparse-rs", "saif"]) == (*groups()["saa"], "saif")
    assert [attack.name for attack in audit("audit.attacks=[saa, all]").attacks] == list(
        groups()["all"]
    )
    with pytest.raises(RecipeError) as refusal:
        attack_names(["sparse-r"])
    assert "sparse-rs" in refusal.value.hint


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("recipe", ["cifar10", "quick", "gtsrb"])
def test_an_effort_sets_every_budget(effort, recipe):
    found = audit(f"audit.effort={effort}", "audit.attacks=all", recipe=recipe)
    assert found.effort == effort
    for attack in found.attacks:
        for key, value in budget_of(ATTACKS[attack.kind], effort).items():
            tuned = (recipe, effort, key) == ("gtsrb", "paper", "queries")
            assert attack.params[key] == (3000 if tuned else value)


def test_the_two_gradients_of_sparse_pgd():
    found = params(audit("audit.attacks=saa", "audit.effort=smoke"))
    assert found["sparse-pgd-p"] == {"steps": 10, "projected": True}
    assert found["sparse-pgd-u"] == {"steps": 10, "projected": False}


@pytest.mark.parametrize("recipe", ["gtsrb", "imagenet100"])
def test_large_data_use_the_other_settings_of_sparse_rs(recipe):
    assert params(audit(recipe=recipe))["sparse-rs"] == {
        "queries": 3000,
        "p_init": 0.3,
        "loss": "margin",
    }
    quick = params(audit("audit.effort=quick", recipe=recipe))["sparse-rs"]
    assert quick == {"queries": 1000, "p_init": 0.3, "loss": "margin"}
    same = params(audit("audit.effort=paper", recipe=recipe))["sparse-rs"]
    assert same["queries"] == 3000


def test_a_single_budget_can_be_set():
    found = audit("audit.effort=quick", "audit.params.sparse-rs.queries=77")
    assert found.changed == ("sparse-rs.queries=77 (quick: 1000)",)
    assert params(found)["sparse-rs"]["queries"] == 77
    assert params(found)["saif"] == {"steps": 100}


def test_attacks_spelled_out(write):
    path = write(
        "schema: 1\nextends: cifar10\naudit:\n  effort: smoke\n  attacks:\n"
        "    - saif\n"
        "    - {name: sparse-rs, params: {p_init: 0.5}}\n"
        "    - {name: rs-margin, kind: sparse-rs, params: {loss: margin, queries: 9}}\n"
    )
    found = load_recipe(path).recipe.audit
    assert [attack.name for attack in found.attacks] == ["saif", "sparse-rs", "rs-margin"]
    assert params(found)["sparse-rs"] == {"queries": 50, "p_init": 0.5}
    assert params(found)["rs-margin"] == {"queries": 9, "loss": "margin"}


@pytest.mark.parametrize(
    ("attacks", "words"),
    [
        ("[]", "must be a list"),
        ("{a: 1}", "must be a list"),
        ("[sparse-r]", "no attack or group"),
        ("[3]", "no attack or group"),
        ("[{kind: saif}]", "no name"),
        ("[{name: x}]", "has the kind None"),
        ("[{name: x, kind: y}]", "has the kind 'y'"),
        ("[{name: a b, kind: saif}]", "name"),
        ("[{name: x, kind: saif, parms: {}}]", "parms is not a setting"),
        ("[{name: x, kind: saif, params: 3}]", "must be a mapping"),
        ("[saa, {name: sparse-rs}]", "two attacks named"),
    ],
)
def test_attacks_that_are_refused(attacks, words):
    with pytest.raises(RecipeError, match=words):
        audit(f"audit.attacks={attacks}")


def test_params_of_an_unknown_attack_are_refused():
    with pytest.raises(RecipeError, match="unknown attack 'sparse-r'") as refusal:
        audit("audit.params.sparse-r.queries=3")
    assert "sparse-rs" in refusal.value.hint
    with pytest.raises(RecipeError, match="no audit effort 'papers'"):
        audit("audit.effort=papers")


@pytest.mark.parametrize("name", ["clean", "saa", "worst-case"])
def test_names_of_numbers_are_reserved(name):
    with pytest.raises(RecipeError, match="cannot be named"):
        audit(f"audit.attacks=[{{name: {name}, kind: sparse-rs}}]")


@pytest.mark.parametrize("effort", EFFORTS)
def test_an_effort_that_nobody_touched_is_unchanged(effort):
    assert audit(f"audit.effort={effort}", "audit.attacks=all").changed == ()


def test_every_setting_of_a_known_attack_counts_as_a_change():
    found = audit("audit.effort=quick", "audit.params.sparse-rs.p_init=0.5")
    assert found.changed == ("sparse-rs.p_init=0.5 (quick: 0.8)",)


def test_an_attack_of_another_name_may_differ_but_not_in_what_the_effort_decides():
    attacks = "[{name: mine, kind: sparse-rs, params: {p_init: 0.5}}]"
    assert audit("audit.effort=quick", f"audit.attacks={attacks}").changed == ()
    attacks = "[{name: mine, kind: sparse-rs, params: {queries: 5}}]"
    changed = audit("audit.effort=quick", f"audit.attacks={attacks}").changed
    assert changed == ("mine.queries=5 (quick: 1000)",)


@pytest.mark.parametrize("recipe", ["gtsrb", "imagenet100"])
def test_recipes_with_budgets_of_their_own_say_so(recipe):
    assert "sparse-rs.queries=3000 (paper: 10000)" in audit(recipe=recipe).changed
