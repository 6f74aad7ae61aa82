"""The resolved recipe: what ``load_recipe`` hands out and ``build`` reads, section by section."""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from robust0.data.augment import AUGMENTATIONS, Augmentation, Shift
from robust0.recipes.efforts import changed_settings
from robust0.recipes.frozen import Section
from robust0.registry import Count, Fraction, Positive, Whole
from robust0.training.averaging import AVERAGINGS, Averaging, NoAveraging
from robust0.training.methods.base import STEPS, PlainStep, StepKind
from robust0.training.methods.inner import INNER_ATTACKS, InnerAttack, NoAttack
from robust0.training.methods.labels import LABELS, LabelSource
from robust0.training.methods.noise import NOISES, InputNoise
from robust0.training.methods.objectives import OBJECTIVES, Objective
from robust0.training.optimizers import OPTIMISERS, SGD, Optimiser
from robust0.training.schedule import SCHEDULES, Schedule, Steps

if not TYPE_CHECKING:  # to a type checker, a field holds what its registry lists
    InputNoise = NOISES.type
    LabelSource = LABELS.type
    InnerAttack = INNER_ATTACKS.type
    Objective = OBJECTIVES.type
    StepKind = STEPS.type
    Averaging = AVERAGINGS.type
    Optimiser = OPTIMISERS.type
    Schedule = SCHEDULES.type
    Augmentation = AUGMENTATIONS.type


class ThreatSpec(Section):
    """A budget in one unit."""

    pixels: Count | None = Field(None, description="pixels that may change (all their channels)")
    features: Count | None = Field(None, description="single values that may change")
    rows: Count | None = Field(None, description="whole rows of pixels that may change")
    columns: Count | None = Field(None, description="whole columns of pixels that may change")
    patches: Count | None = Field(None, description="aligned square patches that may change")
    patch_size: Count | None = Field(None, description="side of such a patch, in pixels")

    @model_validator(mode="after")
    def _one_unit(self) -> Self:
        said = [name for name in _UNITS if getattr(self, name) is not None]
        if len(said) != 1:
            raise ValueError("needs either pixels or features, rows, columns or patches, not both")
        if (said == ["patches"]) != (self.patch_size is not None):
            raise ValueError("patches and patch_size belong together")
        return self

    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler) -> dict[str, object]:
        values: dict[str, object] = whole(self)
        return {key: v for key, v in values.items() if v is not None or key in _ALWAYS}

    @property
    def budget(self) -> int:
        """How many sites may change."""
        said: list[int] = [v for name in _UNITS if (v := getattr(self, name)) is not None]
        return said[0]

    @property
    def unit(self) -> str:
        """What is counted."""
        named = next(unit for name, unit in _UNITS.items() if getattr(self, name) is not None)
        return f"{named}:{self.patch_size}" if self.patch_size is not None else named


_UNITS = {"pixels": "pixel", "features": "feature", "rows": "row", "columns": "column",
          "patches": "patch"}  # fmt: skip
_ALWAYS = ("pixels", "features")  # the other units are written only where they are used


def threat_changes(budget: int, unit: str) -> dict[str, object]:
    """A budget in a unit as changes to a recipe, by dotted key."""
    kind, _, size = unit.partition(":")
    name = next(name for name, known in _UNITS.items() if known == kind)
    sized: dict[str, object] = {"threat.patch_size": int(size)} if size else {}
    return {f"threat.{name}": budget} | sized


class DatasetSpec(Section):
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


class ModelSpec(Section):
    """Which network."""

    name: Annotated[str, Field(min_length=1)] = Field(
        description="a timm name, hf-hub:... or local-dir:..."
    )
    pretrained: bool = Field(default=False, description="start from timm's published weights")
    args: dict[str, JsonValue] = Field(
        default_factory=dict, description="further arguments of timm.create_model"
    )


class ProbeSpec(Section):
    """The attacks that watch for catastrophic overfitting: guided-swap, then sparse-rs.

    An overfitted network misleads gradients, so one of them needs none.
    """

    images: Whole = Field(200, description="reserved images attacked; 0 turns the watch off")
    every: Count = Field(1, description="epochs between two probes")
    forwards: Count = Field(60, description="guided-swap's forward-equivalents per image")
    queries: Count = Field(150, description="sparse-rs's forwards per image guided-swap left")
    collapse: Fraction = Field(
        0.05, description="probe accuracy below which the run counts as collapsed"
    )


class TrainingSpec(Section):
    """How to train."""

    threat: ThreatSpec = Field(description="budget of the training attack and of the noise")
    method: str = Field(description="name of the method; custom: its parts as spelled out")
    noise: InputNoise = Field(description="noise on the images, before anything else")
    labels: LabelSource = Field(description="targets of the loss")
    inner: InnerAttack = Field(description="attack that makes the adversarial images")
    objective: Objective = Field(description="loss")
    step: StepKind = Field(PlainStep(), description="how a batch moves the weights")
    averaging: Averaging = Field(
        NoAveraging(), description="average of the weights that is watched and exported"
    )
    epochs: Count = Field(100, description="passes over the training images")
    batch_size: Count = Field(128, description="images per micro-batch and process")
    accumulate: Count = Field(1, description="micro-batches per optimiser step")
    optimizer: Optimiser = Field(SGD(), description="optimiser")
    schedule: Schedule = Field(Steps(), description="learning rate over the iterations")
    augment: Augmentation = Field(Shift(), description="augmentation")
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
        attacked, inner = self.objective.needs_adversarial, not isinstance(self.inner, NoAttack)
        if attacked and not (inner or self.step.attacks):
            raise ValueError(f"the objective {self.objective.kind} needs an inner attack")
        if not attacked and (inner or self.step.attacks):
            raise ValueError(
                f"the objective {self.objective.kind} uses no attack: set inner.kind to none and "
                "step.kind to plain"
            )
        if inner and self.step.attacks:
            raise ValueError(
                f"the step {self.step.kind} makes its own attack: set inner.kind to none"
            )
        if self.labels.input == "adversarial" and not attacked:
            raise ValueError("labels.input adversarial needs an attack")
        if self.labels.input == "noisy" and not self.objective.needs_clean:
            raise ValueError(
                f"the objective {self.objective.kind} has no other forward to learn labels from: "
                "set labels.input to adversarial or clean"
            )
        if self.probe.images > self.reserved:
            raise ValueError(
                f"probe.images ({self.probe.images}) exceeds reserved ({self.reserved})"
            )
        return self


class AttackSpec(Section):
    """One attack of an audit; ``build`` checks the params against the attack itself."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = Field(
        description="label of its verdicts and key of its random draws"
    )
    kind: Annotated[str, Field(min_length=1)] = Field(description="which attack")
    params: dict[str, JsonValue] = Field(default_factory=dict, description="its settings")


class AuditSpec(Section):
    """How to evaluate."""

    mode: Literal["battery", "cascade"] = Field(
        "battery", description="battery: each attack sees all images; cascade: only survivors"
    )
    effort: Literal["smoke", "quick", "standard", "paper", "converged"] = Field(
        "paper", description="budgets of the attacks; converged: doubled until little is found"
    )
    tolerance: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.005, description="converged: end when a doubling breaks a smaller share of all images"
    )
    max_passes: Count = Field(
        30_000, description="converged: end when a doubling would cost an image more than this"
    )
    max_minutes: Annotated[float, Field(gt=0)] | None = Field(
        None, description="converged: begin no doubling that would likely end later; null: no limit"
    )
    images: Count | None = Field(
        None, description="test images, the first ones or some of each class; null: all"
    )
    attacks: Annotated[tuple[AttackSpec, ...], Field(min_length=1)] = Field(
        description="what is run, in this order"
    )
    seed: Whole = Field(0, description="seed of the attacks' draws")

    @model_validator(mode="after")
    def _converges_by_survivors(self) -> Self:
        if self.effort == "converged" and self.mode != "cascade":
            raise ValueError("effort converged goes on with survivors: set mode to cascade")
        return self

    @property
    def changed(self) -> tuple[str, ...]:
        """Settings of attacks that are not those of the effort."""
        return tuple(
            words
            for spec in self.attacks
            for words in changed_settings(self.effort, spec.name, spec.kind, spec.params)
        )


class Recipe(Section):
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
        mirrored = getattr(self.training.augment, "flip", False)
        mirrored = mirrored and self.dataset.variant == "official"
        if self.dataset.name == "gtsrb" and mirrored:
            raise ValueError(
                "training.augment.flip would turn traffic signs into other signs; "
                "only dataset.variant paper does that"
            )
        return self
