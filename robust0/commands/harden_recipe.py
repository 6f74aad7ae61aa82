"""What the options of ``robust0 harden`` say of a recipe. No torch here."""

from dataclasses import dataclass
from pathlib import Path

from robust0.errors import ModelError
from robust0.recipes.load import Resolved, load_recipe, recipe_of


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


def resolve(options: HardenOptions) -> Resolved:
    """The recipe of a fresh run, as far as the options alone tell."""
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
