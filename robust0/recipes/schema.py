"""The resolved recipe: what ``load_recipe`` hands out and ``build`` reads, section by section."""

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from robust0.recipes.frozen import Count, Fraction, Frozen, Positive, Whole
from robust0.recipes.methods import CUSTOM, METHODS, method_names
from robust0.recipes.parts import Inner, Labels, Noise, Objective


class ThreatSpec(Frozen):
    """A budget in pixels or in features."""

    pixels: Count | None = Field(None, description="pixels that may change (all their channels)")
    features: Count | None = Field(None, description="single values that may change")

    @model_validator(mode="after")
    def _one_unit(self) -> Self:
        if (self.pixels is None) == (self.features is None):
            raise ValueError("needs either pixels or features, not both")
        return self

    @property
    def budget(self) -> int:
        """How many sites may change."""
        return self.pixels or self.features or 0

    @property
    def unit(self) -> Literal["pixel", "feature"]:
        """What is counted."""
        return "feature" if self.pixels is None else "pixel"


class DatasetSpec(Frozen):
    """Which images."""

    name: Annotated[str, Field(min_length=1)] = Field(
        description="a data set's name, folder:PATH or npz:PATH"
    )
    variant: Literal["official", "paper"] = Field(
        "official", description="split and preparation: the data set's own, or the paper's"
    )
    image_size: Count | None = Field(
        None, description="side of the square images the model sees; null: the data's own"
    )
    classes: tuple[str, ...] | None = Field(
        None, description="class folders to use; null: all that are there"
    )

    @model_validator(mode="after")
    def _distinct_classes(self) -> Self:
        if self.classes is not None and len(set(self.classes)) != max(len(self.classes), 2):
            raise ValueError("classes must be at least two, each named once")
        return self


class ModelSpec(Frozen):
    """Which network."""

    name: Annotated[str, Field(min_length=1)] = Field(
        description="a timm name, hf-hub:... or local-dir:..."
    )
    pretrained: bool = Field(default=False, description="start from timm's published weights")
    args: dict[str, JsonValue] = Field(
        default_factory=dict, description="further arguments of timm.create_model"
    )


class SGD(Frozen):
    """Stochastic gradient descent."""

    kind: Literal["sgd"] = Field("sgd", description="stochastic gradient descent")
    lr: Positive = Field(0.05, description="learning rate before the schedule")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="momentum")
    nesterov: bool = Field(default=False, description="Nesterov's momentum")
    weight_decay: Annotated[float, Field(ge=0)] = Field(5e-4, description="l2 penalty")
    decay_all: bool = Field(default=True, description="decay biases and normalisation weights too")

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self


class AdamW(Frozen):
    """Adam with decoupled weight decay."""

    kind: Literal["adamw"] = Field("adamw", description="Adam with decoupled weight decay")
    lr: Positive = Field(1e-3, description="learning rate before the schedule")
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = Field(
        (0.9, 0.999), description="decay rates of the two moments"
    )
    eps: Positive = Field(1e-8, description="added to the root of the second moment")
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.05, description="decoupled decay")
    decay_all: bool = Field(default=False, description="decay biases and normalisation weights too")


class Steps(Frozen):
    """The rate is multiplied by a factor at each milestone."""

    kind: Literal["steps"] = Field("steps", description="piecewise constant")
    milestones: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field(
        (0.25, 0.75), description="fractions of all iterations at which the rate drops"
    )
    factor: Annotated[float, Field(gt=0, le=1)] = Field(0.1, description="multiplier per drop")

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if any(first >= second for first, second in pairwise(self.milestones)):
            raise ValueError("milestones must rise")
        return self


class OneCycle(Frozen):
    """The rate rises linearly to ``lr``, then falls."""

    kind: Literal["one-cycle"] = Field("one-cycle", description="warm-up, then one descent")
    warmup: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.2, description="fraction of all iterations spent rising"
    )
    start: Fraction = Field(0.1, description="first rate, as a fraction of lr")
    end: Fraction = Field(0.0, description="last rate, as a fraction of lr")
    shape: Literal["linear", "cosine"] = Field("linear", description="form of the descent")


class Shift(Frozen):
    """Small images: random crop after padding."""

    kind: Literal["shift"] = Field("shift", description="pad, then crop at a random place")
    pad: Whole = Field(4, description="pixels added on each side")
    flip: bool = Field(default=True, description="mirror half of the images")


class ResizedCrop(Frozen):
    """Large images: a random part, resized."""

    kind: Literal["resized-crop"] = Field("resized-crop", description="random part, resized")
    scale: Annotated[float, Field(gt=0, le=1)] = Field(
        0.25, description="smallest part, as a fraction of the area"
    )
    flip: bool = Field(default=True, description="mirror half of the images")


class ProbeSpec(Frozen):
    """The independent attack that watches for catastrophic overfitting."""

    images: Whole = Field(200, description="reserved images attacked; 0 turns the watch off")
    every: Count = Field(1, description="epochs between two probes")
    forwards: Count = Field(100, description="guided-swap's forward-equivalents per image")
    collapse: Fraction = Field(
        0.05, description="probe accuracy below which the run counts as collapsed"
    )


class TrainingSpec(Frozen):
    """How to train."""

    threat: ThreatSpec = Field(description="budget of the training attack and of the noise")
    method: str = Field(description="name of the method; custom: the four parts as spelled out")
    noise: Noise = Field(description="noise on the images, before anything else")
    labels: Labels = Field(description="targets of the loss")
    inner: Inner = Field(description="attack that makes the adversarial images")
    objective: Objective = Field(description="loss")
    epochs: Count = Field(100, description="passes over the training images")
    batch_size: Count = Field(128, description="images per micro-batch and process")
    accumulate: Count = Field(1, description="micro-batches per optimiser step")
    optimizer: Annotated[SGD | AdamW, Field(discriminator="kind")] = Field(
        SGD(), description="optimiser"
    )
    schedule: Annotated[Steps | OneCycle, Field(discriminator="kind")] = Field(
        Steps(), description="learning rate over the iterations"
    )
    augment: Annotated[Shift | ResizedCrop, Field(discriminator="kind")] = Field(
        Shift(), description="augmentation"
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="type of the passes")
    channels_last: bool = Field(default=True, description="memory layout of images and weights")
    clip_norm: Positive | None = Field(None, description="largest gradient norm; null: unbounded")
    images: Count | None = Field(None, description="train on this many images; null: all")
    reserved: Whole = Field(1000, description="training images kept out for the probe")
    probe: ProbeSpec = Field(ProbeSpec(), description="watch for catastrophic overfitting")
    checkpoint_minutes: Positive = Field(10.0, description="time between two checkpoints")
    seed: Whole = Field(0, description="seed of weights, order, augmentation, noise and attack")

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.method != CUSTOM and self.method not in method_names():
            raise ValueError(f"there is no method {self.method!r}; one of {', '.join(METHODS)}")
        attacked = self.objective.kind != "clean"
        if attacked and self.inner.kind == "none":
            raise ValueError(f"the objective {self.objective.kind} needs an inner attack")
        if not attacked and self.inner.kind != "none":
            raise ValueError("the objective clean uses no inner attack: set inner.kind to none")
        observed = self.labels.input if self.labels.kind == "self-adaptive" else "noisy"
        if observed == "adversarial" and not attacked:
            raise ValueError("labels.input adversarial needs an inner attack")
        if (
            self.labels.kind == "self-adaptive"
            and observed == "noisy"
            and self.objective.kind == "adversarial"
        ):
            raise ValueError(
                "the objective adversarial has no other forward to learn labels from: set "
                "labels.input to adversarial or clean"
            )
        if self.probe.images > self.reserved:
            raise ValueError(
                f"probe.images ({self.probe.images}) exceeds reserved ({self.reserved})"
            )
        return self


class AttackSpec(Frozen):
    """One attack of an audit; ``build`` checks the params against the attack itself."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = Field(
        description="label of its verdicts and key of its random draws"
    )
    kind: Annotated[str, Field(min_length=1)] = Field(description="which attack")
    params: dict[str, JsonValue] = Field(default_factory=dict, description="its settings")


class AuditSpec(Frozen):
    """How to evaluate."""

    mode: Literal["battery", "cascade"] = Field(
        "battery", description="battery: each attack sees all images; cascade: only survivors"
    )
    effort: Literal["smoke", "quick", "standard", "paper"] = Field(
        "paper", description="budgets of the attacks"
    )
    images: Count | None = Field(None, description="test images, from the first on; null: all")
    attacks: Annotated[tuple[AttackSpec, ...], Field(min_length=1)] = Field(
        description="what is run, in this order"
    )
    seed: Whole = Field(0, description="seed of the attacks' draws")


class Recipe(Frozen):
    """Everything a training or an audit needs to know besides files and hardware."""

    model_config = ConfigDict(populate_by_name=True)

    schema_version: Literal[1] = Field(alias="schema", description="form of this file")
    name: Annotated[str, Field(min_length=1)] = Field(description="the recipe's name")
    description: str = Field("", description="what it is for")
    dataset: DatasetSpec = Field(description="images")
    model: ModelSpec = Field(description="network")
    threat: ThreatSpec = Field(description="budget of the evaluation")
    training: TrainingSpec = Field(description="training")
    audit: AuditSpec = Field(description="evaluation")

    @model_validator(mode="after")
    def _signs_have_a_left(self) -> Self:
        mirrored = self.training.augment.flip and self.dataset.variant == "official"
        if self.dataset.name == "gtsrb" and mirrored:
            raise ValueError(
                "training.augment.flip would turn traffic signs into other signs; "
                "only dataset.variant paper does that"
            )
        return self
