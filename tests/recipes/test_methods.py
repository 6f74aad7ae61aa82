import pytest

from robust0.errors import RecipeError
from robust0.recipes.load import load_recipe
from robust0.recipes.methods import CUSTOM, PARTS
from robust0.training.methods.named import ALIASES, expand, find_method, method_names, methods

BASES = ("standard", "sparse-at", "tradeoff", "strades-t", "strades-f", "free-at")
SUFFIXES = ("", "+s", "+n", "+sn", "+ls", "+lsn")
NAMES = tuple(base + suffix for base in BASES for suffix in SUFFIXES)


def resolve(*overrides):
    return load_recipe("cifar10", overrides=overrides).recipe.training


def test_every_name_of_the_paper_is_there():
    assert set(methods()) == set(NAMES)
    assert set(method_names()) == {*NAMES, "fast-ls-l0", "fast-ls-l0-f"}
    assert all(method.summary for method in methods().values())


@pytest.mark.parametrize("steps", [1, 20])
@pytest.mark.parametrize("name", method_names())
def test_every_name_resolves_to_four_parts(name, steps):
    attacked = not name.startswith(("standard", "free-at"))
    training = resolve(f"training.method={name}", *[f"training.inner.steps={steps}"][:attacked])
    canonical = ALIASES.get(name, name)
    base, _, suffix = canonical.partition("+")
    assert training.method == name
    assert training.noise.kind == ("sparse" if "n" in suffix else "none")
    kinds = {"s": "self-adaptive", "sn": "self-adaptive", "ls": "smoothed", "lsn": "smoothed"}
    assert training.labels.kind == kinds.get(suffix, "hard")
    assert training.step.kind == ("free-at" if base == "free-at" else "plain")
    objective = {"standard": "clean", "tradeoff": "tradeoff"}
    objective |= dict.fromkeys(("sparse-at", "free-at"), "adversarial")
    assert training.objective.kind == objective.get(base, "trades")
    if not attacked:
        assert training.inner.kind == "none"
        return
    inner = training.inner
    assert inner.loss == ("kl" if base == "strades-f" else "ce")
    assert inner.labels == ("soft" if suffix in ("s", "sn") else "hard")
    assert (inner.steps, inner.patience, inner.gradient) == (steps, 10, "rand")
    many = steps > 1
    assert (inner.alpha, inner.beta) == ((0.25, 0.25) if many else (1.0, 1.0))
    assert inner.select == ("best" if many else "last")
    assert (inner.skip_misclassified, inner.stop_early) == (many, many)


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
    assert (training.inner.select, training.inner.skip_misclassified) == ("best", False)


def test_twenty_steps_without_early_stopping():
    inner = resolve(
        "training.inner.steps=20",
        "training.inner.stop_early=false",
        "training.inner.skip_misclassified=false",
    ).inner
    assert (inner.steps, inner.select, inner.stop_early) == (20, "best", False)


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
