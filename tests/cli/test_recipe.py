import json

import pytest
from typer.testing import CliRunner

from robust0.cli.recipe import app
from robust0.errors import RecipeError
from robust0.recipes.load import list_recipes, load_recipe


def run(*arguments, **options):
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False, **options)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_names_every_recipe():
    rows = json.loads(run("list", "--output-format", "json"))
    assert tuple(row["name"] for row in rows) == list_recipes()
    lines = run("list", "--output-format", "tsv").splitlines()
    assert lines[0].split("\t")[:3] == ["name", "data", "model"]
    assert len(lines) == 1 + len(rows)


def test_show_as_json_holds_recipe_hash_and_sources():
    shown = json.loads(run("show", "quick", "--output-format", "json"))
    resolved = load_recipe("quick")
    assert shown["hash"] == resolved.hash
    assert shown["recipe"] == json.loads(resolved.recipe.model_dump_json(by_alias=True))
    assert shown["sources"]["training.epochs"] == "quick.yaml (source: robust0)"


def test_show_prints_one_line_per_value_with_its_source():
    lines = [
        line.split("\t")
        for line in run(
            "show", "cifar10", "--model", "convnext_tiny", "--set", "training.epochs=3",
            "--output-format", "tsv",
        ).splitlines()
    ]  # fmt: skip
    assert lines[0] == ["key", "value", "source"]
    rows = {key: (value, source) for key, value, source in lines[1:]}
    assert rows["training.epochs"] == ("3", "--set")
    assert rows["model.name"] == ("convnext_tiny", "--model")
    assert rows["training.optimizer.lr"] == ("0.001", "family convnext* (source: robust0)")
    assert rows["training.labels.start"] == ("0.5", "method fast-ls-l0 (App. G, Table 14)")
    resolved = load_recipe("cifar10", model="convnext_tiny", overrides=["training.epochs=3"])
    assert rows["hash"][0] == resolved.hash
    assert len(rows) == len(resolved.flat()) + 1


@pytest.mark.parametrize("columns", ["40", "100"])
def test_show_fits_narrow_terminals(columns):
    text = run("show", "imagenet100", "--output-format", "rich", env={"COLUMNS": columns})
    assert "recipe imagenet100" in text
    assert max(len(line) for line in text.splitlines()) <= int(columns)


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "with space ü.yaml"
    path.write_text("schema: 1\nextends: cifar10\nname: mine\n")
    assert json.loads(run("show", str(path), "--output-format", "json"))["recipe"]["name"] == "mine"


def test_refusals_reach_the_caller():
    with pytest.raises(RecipeError, match="unknown key"):
        run("show", "cifar10", "--set", "training.epoch=3")


def test_completion_offers_shipped_names():
    from robust0.cli.completions import recipes

    assert recipes("cifar1") == ["cifar10", "cifar100"]
