"""What the options of ``robust0 harden`` say of a recipe. No torch here."""

from dataclasses import dataclass
from pathlib import Path

from robust0.errors import ModelError, RecipeError
from robust0.recipes.load import ResolvedRecipe, load_recipe, recipe_of

SEEDS = "seeds.json"  # in a folder with one run per seed


@dataclass(frozen=True, slots=True)
class HardenOptions:
    """What the command line said; None and empty mean "as the recipe has it"."""

    model: str | None = None
    data: str | None = None
    recipe: str | None = None
    method: str | None = None
    steps: int | None = None
    epochs: int | None = None
    train_images: int | None = None
    batch_size: int | None = None
    seed: int | None = None
    seeds: tuple[int, ...] = ()  # one run per seed
    start_from: str | None = None
    factory: str | None = None
    pretrained: bool = False
    out: Path | None = None
    resume: Path | None = None
    data_dir: Path | None = None
    workers: int | None = None
    compile: bool = False
    stop_on_co: bool = False
    keep_epochs: bool = False
    overrides: tuple[str, ...] = ()

    def changes(self) -> dict[str, object]:
        """The options that are values of the recipe, by key."""
        named = {
            "dataset.name": self.data,
            "training.method": self.method,
            "training.inner.steps": self.steps,
            "training.epochs": self.epochs,
            "training.images": self.train_images,
            "training.batch_size": self.batch_size,
            "training.seed": self.seed,
            "model.pretrained": True if self.pretrained else None,
        }
        changes: dict[str, object] = {k: value for k, value in named.items() if value is not None}
        if self.data is not None and ":" in self.data and self.recipe is None:
            changes["dataset.image_size"] = None  # the images' own, not the fallback recipe's
        return changes


def parse_seeds(text: str | None) -> tuple[int, ...]:
    """The seeds of ``--seeds 0,1,2``."""
    if text is None:
        return ()
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise RecipeError(f"--seeds takes whole numbers, got {text!r}", "for example --seeds 0,1,2")
    seeds = tuple(int(word) for word in words)
    if len(set(seeds)) != len(seeds):
        raise RecipeError(f"--seeds names a seed twice: {text}", "name each seed once")
    return seeds


def resolve_training(options: HardenOptions) -> ResolvedRecipe:
    """The recipe of a fresh run, as far as the options alone tell."""
    if options.seeds and options.seed is not None:
        raise RecipeError("--seeds and --seed are given", "leave out one of them")
    if options.factory is not None and (options.model is not None or options.pretrained):
        raise ModelError(
            "--factory makes the network; --model and --pretrained name another",
            "leave out one of them",
        )
    name = options.recipe
    if name is None:
        name = "quick" if options.data == "sample" else recipe_of(options.data)
    return load_recipe(
        name,
        model=options.model,
        changes=options.changes(),
        overrides=options.overrides,
        fine_tune=options.start_from is not None or options.pretrained,
    )
