import pytest

from robust0.errors import RecipeError
from robust0.recipes.load import load_recipe
from robust0.recipes.methods import CUSTOM, PARTS
from robust0.training.methods.named import (
    ALIASES,
    FAMILIES,
    expand,
    find_method,
    method_names,
    methods,
)


def resolve(*overrides):
    return load_recipe("cifar10", overrides=overrides).recipe.training


@pytest.mark.parametrize("name", method_names())
def test_every_name_becomes_the_parts_it_declares(name):
    method, training = find_method(name), resolve(f"training.method={name}")
    assert method.summary
    assert training.method == name
    for part, registry in FAMILIES.items():
        kind = getattr(method, part)
        assert kind in registry
        assert getattr(training, part).kind == kind
    attacked = training.inner.kind != "none" or training.step.attacks
    assert attacked == training.objective.needs_adversarial


def attacked_methods():
    return [name for name in method_names() if find_method(name).inner == "sparse-pgd"]


@pytest.mark.parametrize("name", attacked_methods())
def test_the_attack_takes_its_loss_and_labels_from_the_method(name):
    method, inner = find_method(name), resolve(f"training.method={name}").inner
    assert inner.loss == method.inner_loss
    assert inner.labels == ("soft" if method.labels == "self-adaptive" else "hard")


@pytest.mark.parametrize("name", attacked_methods())
def test_the_steps_decide_on_sizes_and_early_stopping(name):
    one = resolve(f"training.method={name}").inner
    many = resolve(f"training.method={name}", "training.inner.steps=20").inner
    assert (one.alpha, one.beta, one.select) == (1.0, 1.0, "last")
    assert (many.alpha, many.beta, many.select) == (0.25, 0.25, "best")
    assert [(inner.skips, inner.stops) for inner in (one, many)] == [(False,) * 2, (True,) * 2]


def test_the_flagship_is_what_the_paper_calls_by_its_name():
    training = resolve("training.method=fast-ls-l0")
    kinds = [getattr(training, part).kind for part in PARTS]
    assert kinds == ["sparse", "self-adaptive", "sparse-pgd", "trades", "plain"]
    assert resolve("training.method=fast-ls-l0-f").inner.loss == "kl"
    assert resolve("training.method=strades-t+ls").labels.kind == "smoothed"


def test_the_values_of_the_paper():
    training = resolve("training.method=fast-ls-l0")
    assert (training.noise.factor, training.noise.values) == (2.0, "box")
    assert (training.labels.momentum, training.labels.start) == (0.9, 0.5)
    assert training.labels.input == "noisy"
    assert training.objective.beta == 6.0
    assert resolve("training.method=tradeoff").objective.alpha == 0.75


def test_sparse_at_watches_its_only_forward():
    assert resolve("training.method=sparse-at+s").labels.input == "adversarial"
    assert resolve("training.method=sparse-at+sn").labels.input == "adversarial"


@pytest.mark.parametrize("name", method_names())
def test_every_expanded_value_names_the_method_and_its_source(name):
    said = load_recipe("cifar10", overrides=[f"training.method={name}"]).sources
    for part in PARTS:
        for key in expand(name, {})[part]:
            origin = said[f"training.{part}.{key}"]
            assert origin.where == f"method {name}"
            assert origin.note or (part, key) == ("inner", "kind")


def test_aliases_expand_alike():
    for alias, name in ALIASES.items():
        assert expand(alias, {}) == expand(name, {})
        assert find_method(alias) is methods()[name]


def test_explicit_settings_tune_the_method():
    training = resolve("training.labels.momentum=.7", "training.inner.select=best")
    assert training.method == "fast-ls-l0"
    assert (training.labels.momentum, training.labels.start) == (0.7, 0.5)
    assert (training.inner.select, training.inner.skips) == ("best", False)


def test_twenty_steps_with_and_without_early_stopping():
    steps = "training.inner.steps=20"
    inner = resolve(steps, "training.inner.early_stopping=false").inner
    assert (inner.steps, inner.select, inner.skips, inner.stops) == (20, "best", False, False)
    inner = resolve(steps, "training.inner.stop_early=false").inner
    assert (inner.skips, inner.stops) == (True, False)
    inner = resolve("training.inner.early_stopping=true").inner
    assert (inner.steps, inner.skips, inner.stops) == (1, True, True)


def test_the_adaptive_loss_is_a_tuning_of_the_method():
    training = resolve("training.inner.loss=adaptive", "training.inner.gradient=unprojected")
    assert (training.method, training.inner.loss) == ("fast-ls-l0", "adaptive")


@pytest.mark.parametrize(
    "override",
    ["training.labels.kind=hard", "training.noise.kind=none", "training.inner.loss=kl"],
)
def test_a_changed_part_is_no_longer_called_by_the_name(override):
    resolved = load_recipe("cifar10", overrides=[override])
    assert resolved.recipe.training.method == CUSTOM
    assert "differ from fast-ls-l0" in str(resolved.sources["training.method"])


def test_a_setting_the_method_has_not_is_refused():
    with pytest.raises(RecipeError, match=r"training\.labels\.momentum is not a setting"):
        resolve("training.method=sparse-at", "training.labels.momentum=0.7")
    with pytest.raises(RecipeError, match=r"training\.inner\.steps is not a setting"):
        resolve("training.method=standard", "training.inner.steps=20")


def test_unknown_names_get_suggestions():
    with pytest.raises(RecipeError, match="no training method") as refusal:
        find_method("strade-t")
    assert "strades-t" in refusal.value.hint
    with pytest.raises(RecipeError, match="standard\\+x"):
        find_method("standard+x")
    with pytest.raises(RecipeError, match="must be a method's name, got 3"):
        resolve("training.method=3")


def test_custom_needs_all_four_parts(write):
    parts = {
        "noise": "none",
        "labels": "smoothed",
        "inner": "sparse-pgd",
        "objective": "adversarial",
    }
    sets = [
        "training.method=custom",
        *(f"training.{part}.kind={kind}" for part, kind in parts.items()),
    ]
    training = resolve(*sets)
    assert (training.method, training.labels.amount) == (CUSTOM, 0.1)
    with pytest.raises(RecipeError, match=r"training\.objective\.kind must be given"):
        resolve(*sets[:-1])


@pytest.mark.parametrize(
    "overrides",
    [
        ["training.objective.kind=clean"],
        ["training.inner.kind=none"],
        ["training.method=standard", "training.labels={kind: self-adaptive, input: adversarial}"],
    ],
)
def test_parts_that_do_not_fit_together_are_refused(overrides):
    with pytest.raises(RecipeError, match=r"cifar10\.yaml: training is refused"):
        resolve(*overrides)


def test_labels_cannot_learn_from_a_forward_that_is_not_made():
    with pytest.raises(RecipeError, match="no other forward to learn labels from"):
        resolve("training.method=sparse-at+s", "training.labels.input=noisy")
