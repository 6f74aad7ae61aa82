"""From a recipe's model to a network for this data: fresh, pretrained, continued, or the user's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from robust0.data.imageset import ImageSet
from robust0.errors import ModelError
from robust0.models.adapt import adaptation_plan
from robust0.models.build import NetworkSpec
from robust0.models.checkpoint import Metadata, load_checkpoint
from robust0.models.classifiers import ClassifierNotes
from robust0.models.factory import from_factory
from robust0.models.pretrained import realize
from robust0.models.voting import Certifiable
from robust0.recipes.schema import ModelSpec as ModelRecipe
from robust0.zoo.fetch import locate


@dataclass(frozen=True, slots=True)
class TrainableNetwork:
    """A network ready for training, and where it came from."""

    module: nn.Module
    spec: NetworkSpec | None  # None: made by a factory
    name: str
    adaptations: tuple[str, ...]
    start: str  # "fresh", or what the weights came from
    classifier: ClassifierNotes | None = None  # what it will be part of

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know before training starts."""
        fresh = self.start == "fresh"
        return (*self.adaptations, *(() if fresh else (f"starts from {self.start}",)))

    def describe(self, data: ImageSet, **facts: Any) -> Metadata:  # noqa: ANN401 - Metadata's fields
        """The metadata of a checkpoint of this network."""
        facts |= {"adaptations": self.adaptations, "class_names": data.class_names}
        facts |= {"pretrained": None if self.start == "fresh" else self.start}
        if self.spec is not None and self.classifier is not None:
            facts |= {"classifier": self.classifier, "input_size": data.image_shape}
            facts |= {"mean": self.spec.mean[:-1], "std": self.spec.std[:-1]}
        if self.spec is not None:
            return Metadata.of(self.spec, **facts)
        channels = data.image_shape[0]
        return Metadata.made(
            factory=self.name, classes=len(data.class_names), input_size=data.image_shape,
            mean=(0.0,) * channels, std=(1.0,) * channels, **facts,
        )  # fmt: skip


def network_for(
    recipe: ModelRecipe,
    data: ImageSet,
    *,
    source: str | None,
    factory: str | None,
    seed: int,
    classifier: ClassifierNotes | None = None,
) -> TrainableNetwork:
    """The network to train on this data.

    Args:
        recipe: what the recipe says of the model.
        data: the training images.
        source: a checkpoint to be fine-tuned, instead of the recipe's model.
        factory: the user's own network; with ``source``, its weights.
        seed: of fresh weights.
        classifier: what the network will be part of; it then sees parts of images.
    """
    if classifier is not None and (factory is not None or recipe.pretrained):
        raise ModelError(
            f"a {classifier.kind} classifier needs a fresh timm network that sees one channel more",
            "leave out --factory and --pretrained, or choose another method",
        )
    if factory is not None:
        made = from_factory(factory, None if source is None else locate(source), seed=seed)
        start = "fresh" if made.sha256 is None else f"sha256 {made.sha256}"
        return TrainableNetwork(made.network, None, factory, (), start)
    if source is not None:
        return _continued(data, locate(source), classifier)
    shape = data.image_shape if classifier is None else classifier.inner_size(data.image_shape)
    chosen = adaptation_plan(
        recipe.name,
        image_shape=shape,
        classes=len(data.class_names),
        pretrained=recipe.pretrained,
        args=dict(recipe.args),
    )
    start = "fresh" if chosen.source is None else chosen.source.name
    module = realize(chosen, seed=seed)
    name, adaptations = chosen.spec.arch, chosen.adaptations
    return TrainableNetwork(module, chosen.spec, name, adaptations, start, classifier)


def _continued(data: ImageSet, path: Path, classifier: ClassifierNotes | None) -> TrainableNetwork:
    loaded = load_checkpoint(path)
    known, spec = loaded.metadata, loaded.metadata.spec()
    if spec.classes != len(data.class_names):
        raise ModelError(
            f"{path} has {spec.classes} classes, {data.name} has {len(data.class_names)}",
            "fine-tune on data with the same classes",
        )
    if known.input_size != data.image_shape:
        raise ModelError(
            f"{path} takes images {known.input_size}, {data.name} has {data.image_shape}",
            "fine-tune on images of the same shape",
        )
    wanted = data.image_shape if classifier is None else classifier.inner_size(data.image_shape)
    if spec.input_size != wanted:
        raise ModelError(
            f"the network of {path} sees {spec.input_size}, the method shows it {wanted}",
            "fine-tune with the method and the settings it was trained by",
        )
    module = loaded.network
    if isinstance(module, Certifiable):
        module = module.network
    start = f"sha256 {loaded.sha256}"
    return TrainableNetwork(module.train(), spec, spec.arch, known.adaptations, start, classifier)
