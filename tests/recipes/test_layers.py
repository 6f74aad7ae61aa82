import pytest

from robust0.attacks import ATTACKS
from robust0.attacks.battery import budget_of
from robust0.errors import RecipeError
from robust0.recipes.layers import command_line, families_of
from robust0.recipes.load import dump_recipe, load_recipe
from robust0.recipes.tree import Origin, branch, grow, plain


def test_later_assignments_win_and_values_are_yaml():
    layer = command_line(
        "resnet18",
        {},
        ["training.epochs=3", "training.epochs = 4", "training.optimizer={lr: 1e-3}", "name=a=b"],
    )
    assert plain(layer) == {
        "model": {"name": "resnet18"},
        "training": {"epochs": 4, "optimizer": {"lr": 1e-3}},
        "name": "a=b",
    }


def test_typed_changes_lie_below_set_and_are_checked_alike():
    changes = {"training.epochs": 3, "dataset.name": "npz:a=b.npz", "dataset.image_size": None}
    resolved = load_recipe("cifar10", changes=changes, overrides=["training.epochs=4"])
    assert resolved.recipe.training.epochs == 4
    assert (resolved.recipe.dataset.name, resolved.recipe.dataset.image_size) == (
        "npz:a=b.npz",
        None,
    )
    assert str(resolved.sources["dataset.name"]) == "--set"
    with pytest.raises(RecipeError, match=r"--set training\.epoch: unknown key"):
        load_recipe("cifar10", changes={"training.epoch": 3})
    with pytest.raises(RecipeError, match=r"^--epochs: training\.epochs must be"):
        load_recipe("cifar10", changes={"training.epochs": "3"})


def test_order_of_kind_and_settings_does_not_matter():
    first = ["training.optimizer.kind=adamw", "training.optimizer.lr=0.5"]
    recipes = [load_recipe("cifar10", overrides=sets) for sets in (first, first[::-1])]
    assert recipes[0].hash == recipes[1].hash
    assert recipes[0].recipe.training.optimizer.lr == 0.5


@pytest.mark.parametrize(
    "text", ["training.epochs", "=3", "training.epochs=", "a..b=3", ".a=3", ""]
)
def test_malformed_assignments(text):
    with pytest.raises(RecipeError, match="--set takes key=value"):
        command_line(None, {}, [text])


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("training.epoch=3", "training.epochs"),
        ("epochs=3", "training.epochs"),
        ("trainin.epochs=3", "training"),
        ("training.optimizer.momentun=0.5", "training.optimizer.momentum"),
        ("audit.efort=quick", "audit.effort"),
        ("threat.pixel=3", "threat.pixels"),
    ],
)
def test_unknown_keys_get_close_matches(text, meant):
    with pytest.raises(RecipeError, match="unknown key") as refusal:
        command_line(None, {}, [text])
    assert refusal.value.message.startswith(f"--set {text.partition('=')[0]}: ")
    assert meant in refusal.value.hint


@pytest.mark.parametrize("key", ["extends", "families.a.training.epochs", "training.epochs.x"])
def test_keys_that_cannot_be_set(key):
    with pytest.raises(RecipeError):
        command_line(None, {}, [f"{key}=3"])


def test_families_match_the_bare_name():
    patterns = {"convnext*": {"training": {"epochs": 1}}, "*tiny*": {"training": {"epochs": 2}}}
    families = branch(grow(patterns, Origin("f.yaml")), ())

    def epochs(model):
        return [plain(family)["training"]["epochs"] for family in families_of(families, model)]

    assert epochs("convnext_tiny") == [1, 2]
    assert epochs("ConvNeXt_base") == [1]
    assert epochs("hf-hub:timm/convnext_base.fb_in1k") == [1]
    assert epochs("local-dir:/models/convnext_x") == [1]
    assert epochs("hf-hub:convnext_x") == [1]
    assert epochs("resnet18") == []


def test_another_method_voids_spelled_out_parts(write):
    full = write(dump_recipe(load_recipe("cifar10").recipe), "full.yaml")
    assert load_recipe(full, overrides=["training.method=sparse-at"]).recipe.training == (
        load_recipe("cifar10", overrides=["training.method=sparse-at"]).recipe.training
    )
    same = load_recipe(full, overrides=["training.method=strades-t+sn"]).recipe.training
    assert same.labels.kind == "self-adaptive"


def test_another_effort_voids_budgets_but_not_tuning(write):
    full = write(dump_recipe(load_recipe("gtsrb").recipe), "full.yaml")
    smoke = load_recipe(full, overrides=["audit.effort=smoke"]).recipe.audit
    assert smoke == load_recipe("gtsrb", overrides=["audit.effort=smoke"]).recipe.audit
    (rs,) = (attack for attack in smoke.attacks if attack.kind == "sparse-rs")
    assert rs.params == {
        **budget_of(ATTACKS["sparse-rs"], "smoke"),
        "p_init": 0.3,
        "loss": "margin",
    }
