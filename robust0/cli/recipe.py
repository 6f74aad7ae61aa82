"""robust0 recipe: which recipes there are, and what one says once everything is resolved."""

from typing import Annotated

import typer

from robust0.cli import completions
from robust0.cli.checking import check_recipes
from robust0.cli.helping import examples
from robust0.cli.options import Form, Overrides
from robust0.units import counted
from robust0.views.output import OutputFormat
from robust0.views.tables import mapping, table

app = typer.Typer(
    name="recipe",
    help="List recipes, show one with its hash and the source of every value, check files.",
    no_args_is_help=True,
)


@app.command("list", epilog=examples("robust0 recipe list"))
def list_command(form: Form = OutputFormat.AUTO) -> None:
    """List the shipped recipes."""
    from robust0.recipes.load import list_recipes, load_recipe

    recipes = [load_recipe(name).recipe for name in list_recipes()]
    rows = [
        {
            "name": recipe.name,
            "data": recipe.dataset.name,
            "model": recipe.model.name,
            "budget": counted(recipe.threat.budget, recipe.threat.unit),
            "method": recipe.training.method,
            "epochs": recipe.training.epochs,
            "effort": recipe.audit.effort + (" (modified)" if recipe.audit.changed else ""),
            "description": recipe.description,
        }
        for recipe in recipes
    ]
    table("recipes", rows, form, spare=("effort", "budget", "epochs", "method"))


@app.command("show", epilog=examples("robust0 recipe show cifar10 --model convnext_tiny"))
def show_command(
    name: Annotated[
        str,
        typer.Argument(
            help="A shipped recipe's name, or a .yaml file.", autocompletion=completions.recipes
        ),
    ],
    model: Annotated[
        str | None, typer.Option("--model", help="Another network; model families follow it.")
    ] = None,
    overrides: Overrides = None,
    form: Form = OutputFormat.AUTO,
) -> None:
    """Show a recipe as it would run: every value, where it comes from, and the hash."""
    from robust0.recipes.load import load_recipe

    resolved = load_recipe(name, model=model, overrides=overrides or ())
    if form is OutputFormat.JSON:
        values = {
            "hash": resolved.hash,
            "recipe": resolved.recipe.model_dump(mode="json", by_alias=True),
            "sources": {key: str(origin) for key, origin in resolved.sources.items()},
        }
        mapping(resolved.recipe.name, values, form)
        return
    rows = [
        {"key": key, "value": value, "source": str(resolved.sources[key])}
        for key, value in resolved.flat().items()
    ]
    rows.append({"key": "hash", "value": resolved.hash, "source": "sha256 of all of the above"})
    table(f"recipe {resolved.recipe.name}", rows, form)


app.command("check", epilog=examples("robust0 recipe check recipes/*.yaml"))(check_recipes)
