import json
import random

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.errors import RecipeError
from robust0.recipes.load import dump_recipe, list_recipes, load_recipe, recipe_hash
from robust0.recipes.schema import Recipe
from robust0.recipes.yaml_source import read_file
from robust0.resources import shipped
from robust0.training.methods.named import method_names

BASE = "schema: 1\nextends: cifar10\n"
PAPER = ("cifar10", "cifar100", "gtsrb", "imagenet100")
MODELS = (None, "convnext_tiny", "swin_tiny_patch4_window7_224", "vit_tiny_patch16_224", "resnet18")


def message(path, *overrides, model=None):
    with pytest.raises(RecipeError) as refusal:
        load_recipe(path, model=model, overrides=overrides)
    assert "\n" not in refusal.value.message
    assert refusal.value.hint
    return refusal.value.message


CERTIFIED = (
    "masks",
    "votes-few",
    "votes-gtsrb",
    "votes-many",
)  # no attack is part of their methods


MUON = ("quick", "quick-gtsrb", "strong")


def test_the_shipped_recipes():
    assert list_recipes() == (
        *PAPER, "masks", "quick", "quick-gtsrb", "strong", *CERTIFIED[1:],
    )  # fmt: skip


@pytest.mark.parametrize("name", CERTIFIED)
def test_another_method_voids_the_views_of_a_recipe(name):
    training = load_recipe(name, overrides=["training.method=fast-ls-l0"]).recipe.training
    assert training.method == "fast-ls-l0"
    assert (training.step.kind, training.labels.kind) == ("plain", "self-adaptive")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", list_recipes())
def test_every_shipped_recipe_validates_for_every_family(name, model):
    resolved = load_recipe(name, model=model)
    recipe = resolved.recipe
    assert recipe.name == name
    assert recipe.description
    assert resolved.hash == recipe_hash(recipe)
    assert recipe.model.name == (model or recipe.model.name)
    adamw = model is not None and model.startswith(("convnext", "swin", "vit"))
    own = "muon" if name in MUON else "sgd"
    assert recipe.training.optimizer.kind == ("adamw" if adamw else own)
    assert set(resolved.sources) == set(resolved.flat())


@pytest.mark.parametrize(
    ("name", "model", "size", "test", "train", "epochs", "batch", "images"),
    [
        ("cifar10", "preact_resnet18", 32, 20, 120, 100, 128, None),
        ("cifar100", "preact_resnet18", 32, 10, 60, 100, 128, None),
        ("gtsrb", "preact_resnet18", 32, 12, 72, 100, 128, 500),
        ("imagenet100", "resnet34", 224, 200, 1200, 50, 48, 500),
    ],
)
def test_the_settings_of_the_paper(name, model, size, test, train, epochs, batch, images):
    recipe = load_recipe(name).recipe
    training = recipe.training
    assert (recipe.model.name, recipe.dataset.image_size) == (model, size)
    assert (recipe.threat.pixels, training.threat.pixels) == (test, train)
    assert (training.epochs, training.batch_size, recipe.audit.images) == (epochs, batch, images)
    assert training.method == "fast-ls-l0"
    sgd = training.optimizer
    assert (sgd.lr, sgd.momentum, sgd.weight_decay, sgd.nesterov) == (0.05, 0.9, 5e-4, False)
    assert (training.schedule.milestones, training.schedule.factor) == ((0.25, 0.75), 0.1)
    assert (training.clip_norm, training.precision) == (None, "fp32")
    assert (recipe.audit.mode, recipe.audit.effort) == ("battery", "paper")


def test_signs_are_not_mirrored_unless_the_paper_is_followed():
    assert load_recipe("gtsrb").recipe.training.augment.flip is False
    assert "other signs" in message("gtsrb", "training.augment.flip=true")
    both = ["training.augment.flip=true", "dataset.variant=paper"]
    assert load_recipe("gtsrb", overrides=both).recipe.training.augment.flip is True


def test_imagenet100_has_a_hundred_sorted_classes():
    classes = load_recipe("imagenet100").recipe.dataset.classes
    assert len(set(classes)) == 100
    assert list(classes) == sorted(classes)
    assert all(len(name) == 9 and name[0] == "n" and name[1:].isdigit() for name in classes)


def test_the_families_of_the_paper_recipes_are_alike():
    def families(name):
        return yaml.safe_load((shipped("recipes") / f"{name}.yaml").read_text())["families"]

    assert all(families(name) == families("cifar10") for name in PAPER)


@pytest.mark.parametrize("name", list_recipes())
def test_every_value_of_a_shipped_recipe_says_where_it_comes_from(name):
    """Only names, sizes and what a data set itself decides may stand without a remark."""
    free = ("schema", "name", "description", "dataset.", "model.", "audit.attacks.")
    for key, origin in load_recipe(name).sources.items():
        if not key.startswith(free) and origin.where != "default":
            assert origin.note, key


@pytest.mark.parametrize("name", list_recipes())
def test_the_hash_does_not_depend_on_the_order_of_keys(name, write):
    def shuffled(value, draw):
        if isinstance(value, dict):
            items = [(key, shuffled(item, draw)) for key, item in value.items()]
            draw.shuffle(items)
            return dict(items)
        return [shuffled(item, draw) for item in value] if isinstance(value, list) else value

    values = yaml.safe_load(dump_recipe(load_recipe(name).recipe))
    hashes = {
        load_recipe(
            write(yaml.safe_dump(shuffled(values, random.Random(seed)), sort_keys=False))
        ).hash
        for seed in range(3)
    }
    assert hashes == {load_recipe(name).hash}


def test_the_hash_is_that_of_canonical_json():
    resolved = load_recipe("quick")
    values = json.loads(resolved.recipe.model_dump_json(by_alias=True))
    again = Recipe.model_validate_json(json.dumps(values))
    assert recipe_hash(again) == resolved.hash
    assert load_recipe("quick", overrides=["training.seed=1"]).hash != resolved.hash
    assert load_recipe("quick", overrides=["training.objective.beta=6"]).hash == resolved.hash


overrides = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(min_size=1, max_size=20).map(json.dumps),
        "description": st.text(max_size=40).map(json.dumps),
        "threat.pixels": st.integers(1, 1000),
        "training.threat": st.sampled_from(["{pixels: 7}", "{features: 21}"]),
        "training.method": st.sampled_from(
            [
                name
                for name in method_names()
                if not name.startswith(
                    ("standard", "free-at", "partition-vote", "ablation", "masks")
                )
            ]
        ),
        "training.inner.steps": st.sampled_from([1, 2, 20]),
        "training.optimizer": st.sampled_from(
            ["{kind: adamw}", "{lr: 1e-5}", "{kind: sgd, nesterov: true}"]
        ),
        "training.optimizer.lr": st.floats(1e-12, 1e6),
        "training.schedule.kind": st.sampled_from(["steps", "one-cycle"]),
        "training.clip_norm": st.sampled_from(["null", "1e-1", "3"]),
        "audit.effort": st.sampled_from(["smoke", "quick", "standard", "paper"]),
        "audit.attacks": st.sampled_from(["saa", "[worst-case]", "[{name: x, kind: saif}]"]),
        "audit.images": st.none().map(lambda _: "null") | st.integers(1, 10**6),
        "model.args": st.dictionaries(
            st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
            st.integers(-9, 9)
            | st.booleans()
            | st.text(max_size=5)
            | st.lists(st.integers(-(10**17), 10**17), max_size=2),
            max_size=2,
        ).map(json.dumps),
    },
)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from([name for name in list_recipes() if name not in CERTIFIED]),
    model=st.sampled_from(MODELS),
    sets=overrides,
)
def test_a_resolved_recipe_loads_as_itself(tmp_path_factory, name, model, sets):
    assignments = [f"{key}={value}" for key, value in sets.items()]
    resolved = load_recipe(name, model=model, overrides=assignments)
    path = tmp_path_factory.mktemp("recipe") / "resolved.yaml"
    path.write_text(dump_recipe(resolved.recipe), encoding="utf-8")
    again = load_recipe(str(path))
    assert again.recipe == resolved.recipe
    assert again.hash == resolved.hash


def test_another_method_leaves_behind_the_tuning_of_parts_it_does_not_have():
    beta = {
        name: load_recipe("strong", overrides=[f"training.method={name}"]).flat()
        for name in ("fast-ls-l0", "strades-t", "sparse-at", "standard")
    }
    said = {name: flat.get("training.objective.beta") for name, flat in beta.items()}
    assert said == {"fast-ls-l0": 10, "strades-t": 10, "sparse-at": None, "standard": None}
    with pytest.raises(RecipeError, match="not a setting"):
        load_recipe("strong", overrides=["training.method=sparse-at", "training.objective.beta=10"])


def test_sources_name_every_layer(write):
    path = write(
        BASE + "training:\n  epochs: 7  # because\n"
        "families:\n  'convnext*':\n    training:\n      seed: 4  # Sec. 9\n"
    )
    resolved = load_recipe(path, model="convnext_tiny", overrides=["audit.seed=5"])
    said = {key: str(origin) for key, origin in resolved.sources.items()}
    assert said["training.epochs"] == "mine.yaml (because)"
    assert said["training.batch_size"] == "extends cifar10 (App. G)"
    assert said["training.seed"] == "family convnext* (Sec. 9)"
    assert said["training.optimizer.kind"] == "family convnext* (source: robust0)"
    assert said["training.optimizer.eps"] == "default"
    assert said["model.name"] == "--model"
    assert said["audit.seed"] == "--set"
    assert said["training.labels.momentum"] == "method fast-ls-l0 (Table 15)"
    assert said["audit.attacks.2.params.queries"] == "effort paper"
    assert said["name"] == "mine.yaml (file name)"
    assert resolved.sources["training.epochs"].place == "mine.yaml:4"


def test_what_a_file_says_of_itself_is_not_inherited(write):
    recipe = load_recipe(write(BASE)).recipe
    assert (recipe.name, recipe.description) == ("mine", "")
    assert recipe.training == load_recipe("cifar10").recipe.training


def test_families_beat_files_and_the_command_line_beats_families(write):
    family = "families: {'convnext*': {training: {epochs: 9}}}\n"
    path = write(BASE + "training: {epochs: 7}\n" + family)
    assert load_recipe(path).recipe.training.epochs == 7
    assert load_recipe(path, model="convnext_tiny").recipe.training.epochs == 9
    by_set = load_recipe(path, overrides=["model.name=convnext_tiny"]).recipe
    assert by_set.training.epochs == 9
    last = load_recipe(path, model="convnext_tiny", overrides=["training.epochs=3"]).recipe
    assert last.training.epochs == 3


def test_a_short_recipe_of_ones_own(write):
    path = write(
        "schema: 1\ndataset: {name: 'folder:/data', image_size: 64}\nmodel: {name: resnet18}\n"
        "threat: {pixels: 5}\n"
        "training: {threat: {pixels: 30}, method: sparse-at, optimizer: {lr: 0.2}}\n"
    )
    recipe = load_recipe(path).recipe
    assert (recipe.training.optimizer.kind, recipe.training.optimizer.lr) == ("sgd", 0.2)
    assert len(recipe.audit.attacks) == 7


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\n", "schema is missing"),
        ("schema: 2\n", "schema is 2"),
        ("schema: true\n", "schema is True"),
        (BASE + "trainig: {}\n", "mine.yaml: unknown key trainig"),
        (BASE + "training:\n  epoch: 3\n", "mine.yaml:4: unknown key training.epoch"),
        (BASE + "training: 5\n", "mine.yaml:3: training must be a mapping"),
        (BASE + "training:\n", "mine.yaml:3: training must be a mapping"),
        (BASE + "training:\n  epochs: '3'\n", "mine.yaml:4: training.epochs must be"),
        (BASE + "training:\n  epochs: 3.0\n", "mine.yaml:4: training.epochs must be"),
        (BASE + "training:\n  epochs: yes\n", "mine.yaml:4: training.epochs must be"),
        (BASE + "training:\n  epochs: {a: 1}\n", "training.epochs must be a value"),
        (BASE + "training:\n  augment: {flip: 1}\n", "training.augment.flip must be"),
        (
            BASE + "training:\n  optimizer: {kind: adam}\n",
            "mine.yaml:4: training.optimizer has the kind",
        ),
        (BASE + "training:\n  optimizer: {betas: [0.9, 0.99]}\n", "betas is not a setting"),
        (BASE + "training:\n  precision: fp8\n", "mine.yaml:4: training.precision is 'fp8'"),
        (BASE + "training:\n  reserved: 10\n", "exceeds reserved"),
        (BASE + "threat: {pixels: 3, features: 3}\n", "threat is refused"),
        (BASE + "families: 3\n", "families must be a mapping"),
        (BASE + "families: {'a*': {trainin: {}}}\n", "unknown key families.a*.trainin"),
        (BASE + "families: {'a*': {model: {name: x}}}\n", "unknown key families.a*.model.name"),
        ("schema: 1\nname: x\n", "without a training.method"),
        ("schema: 1\ntraining: {method: standard}\n", "dataset is missing (and 3 more)"),
        ("schema: 1\nextends: nope\n", "mine.yaml:2: there is no recipe named 'nope'"),
        ("schema: 1\nextends: ./nope.yaml\n", "does not exist"),
        ("schema: 1\nextends: [cifar10]\n", "extends must be a recipe's name"),
        ("schema: 1\nextends: mine.yaml\n", "extends itself"),
        ("schema: 1\nextends: quick\n", "'quick' itself extends 'cifar10'"),
    ],
)
def test_refusals(write, text, words):
    assert words in message(write(text))


def test_extends_by_path_and_its_cycle(write):
    base = write(BASE.replace("extends: cifar10", "extends: child.yaml"), "base.yaml")
    child = write("schema: 1\nextends: base.yaml\n", "child.yaml")
    for path in (base, child):
        assert "itself extends" in message(path)
    write((shipped("recipes") / "cifar10.yaml").read_text(), "base.yaml")
    resolved = load_recipe(child)
    assert resolved.recipe.training.epochs == 100
    assert resolved.sources["training.epochs"].where == "extends base"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cifar", "no recipe named 'cifar'"),
        ("", "no recipe named ''"),
        ("nowhere/x.yaml", "does not exist"),
        ("/", "cannot read"),
    ],
)
def test_names_that_are_no_recipes(name, words):
    assert words in message(name)


def test_shipped_files_stay_plain():
    """Every shipped file is read by this reader, whatever else ``load_recipe`` does with it."""
    for name in list_recipes():
        assert read_file(shipped("recipes") / f"{name}.yaml")["schema"].value == 1


@pytest.mark.parametrize("model", ["preact_resnet18", "convnext_tiny"])
def test_fine_tuning_has_a_schedule_of_its_own_that_can_be_changed(model):
    scratch = load_recipe("cifar10", model=model)
    tuned = load_recipe("cifar10", model=model, fine_tune=True)
    schedule = tuned.recipe.training.schedule
    assert (schedule.kind, schedule.peak, schedule.start) == ("one-cycle", 0.1, 0.0)
    assert tuned.recipe.training.optimizer == scratch.recipe.training.optimizer
    assert tuned.sources["training.schedule.peak"].where == "fine-tuning"
    changed = load_recipe("cifar10", fine_tune=True, overrides=["training.schedule.peak=0.5"])
    assert changed.recipe.training.schedule.peak == 0.5
    steps = load_recipe("cifar10", fine_tune=True, overrides=["training.schedule.kind=steps"])
    assert steps.recipe.training.schedule.kind == "steps"
