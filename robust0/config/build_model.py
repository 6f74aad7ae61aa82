"""From a recipe's model to a network for this data: fresh, pretrained, or from a checkpoint."""

from dataclasses import dataclass
from pathlib import Path

from robust0.config.schema import ModelSpec as ModelRecipe
from robust0.data.imageset import ImageSet
from robust0.errors import ModelError
from robust0.models.adapt import plan
from robust0.models.build import ModelSpec
from robust0.models.checkpoint import load
from robust0.models.normalize import Normalized
from robust0.models.pretrained import realize


@dataclass(frozen=True, slots=True)
class Network:
    """A network ready for training, and where it came from."""

    module: Normalized
    spec: ModelSpec
    adaptations: tuple[str, ...]
    start: str  # "fresh", or what the weights came from

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know before training starts."""
        fresh = self.start == "fresh"
        return (*self.adaptations, *(() if fresh else (f"starts from {self.start}",)))


def network_for(recipe: ModelRecipe, data: ImageSet, source: str | None, *, seed: int) -> Network:
    """The network of a recipe, or that of a checkpoint to be fine-tuned on such data."""
    if source is not None:
        return _continued(data, Path(source))
    chosen = plan(
        recipe.name,
        image_shape=data.image_shape,
        classes=len(data.class_names),
        pretrained=recipe.pretrained,
        args=recipe.model_dump(mode="json")["args"],
    )
    start = "fresh" if chosen.source is None else chosen.source.name
    return Network(realize(chosen, seed=seed), chosen.spec, chosen.adaptations, start)


def _continued(data: ImageSet, path: Path) -> Network:
    loaded = load(path)
    spec = loaded.metadata.spec()
    if spec.classes != len(data.class_names):
        raise ModelError(
            f"{path} has {spec.classes} classes, {data.name} has {len(data.class_names)}",
            "fine-tune on data with the same classes",
        )
    if spec.input_size != data.image_shape:
        raise ModelError(
            f"{path} takes images {spec.input_size}, {data.name} has {data.image_shape}",
            "fine-tune on images of the same shape",
        )
    start = f"sha256 {loaded.sha256}"
    return Network(loaded.network.train(), spec, loaded.metadata.adaptations, start)
