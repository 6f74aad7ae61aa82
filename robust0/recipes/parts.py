"""The four parts of a training method: noise, labels, inner attack, objective."""

from typing import Annotated, Literal

from pydantic import Field

from robust0.recipes.frozen import Count, Fraction, Frozen, Positive


class NoNoise(Frozen):
    """Images enter the attack as augmented."""

    kind: Literal["none"] = Field(description="no noise")


class SparseNoise(Frozen):
    """N: random sparse noise replaces the image everywhere in the step."""

    kind: Literal["sparse"] = Field(
        description="0 to factor x k_train random sites get random values"
    )
    factor: Positive = Field(
        2.0, description="most noisy sites, as a multiple of the training budget"
    )
    values: Literal["box", "uniform-colour"] = Field(
        "box",
        description="box: U(-1, 1) added, then clipped; uniform-colour: a colour from U(0, 1)",
    )


class HardLabels(Frozen):
    """One-hot targets."""

    kind: Literal["hard"] = Field(description="one-hot targets")


class SmoothedLabels(Frozen):
    """(1 - amount) one-hot + amount / classes."""

    kind: Literal["smoothed"] = Field(description="label smoothing")
    amount: Fraction = Field(0.1, description="share spread evenly over all classes")


class SelfAdaptiveLabels(Frozen):
    """S: a running mean of the model's own predictions per image, with confidence weights."""

    kind: Literal["self-adaptive"] = Field(description="targets follow the model's predictions")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.9, description="share of the old target kept at each update"
    )
    start: Fraction = Field(0.5, description="fraction of all epochs after which targets move")
    input: Literal["noisy", "clean", "adversarial"] = Field(
        "noisy",
        description="forward whose prediction is averaged; clean costs one more if there is noise",
    )


class NoInner(Frozen):
    """No attack in training."""

    kind: Literal["none"] = Field(description="no attack in training")


class SparsePGDInner(Frozen):
    """Sparse-PGD as the training attack."""

    kind: Literal["sparse-pgd"] = Field(description="Sparse-PGD in eval mode")
    steps: Count = Field(1, description="updates of mask and magnitude per batch")
    alpha: Positive = Field(0.25, description="step of the magnitudes")
    beta: Positive = Field(0.25, description="step of the mask, times the root of the sites")
    patience: Count = Field(10, description="unchanged masks before a mask is drawn anew")
    gradient: Literal["projected", "unprojected", "rand"] = Field(
        "rand", description="gradient of the magnitudes; rand: a fair choice per batch"
    )
    select: Literal["last", "best"] = Field(
        "last", description="iterate that is trained on: the last, or the one of highest loss"
    )
    skip_misclassified: bool = Field(
        default=False, description="return images clean that are misclassified already"
    )
    stop_early: bool = Field(
        default=False, description="stop an image at its first misclassification"
    )
    loss: Literal["ce", "kl"] = Field(
        "ce",
        description="what the attack maximises: CE to the label or KL to the start's prediction",
    )
    labels: Literal["soft", "hard"] = Field(
        "soft", description="labels of the CE: the label source's present targets or the true class"
    )


class CleanObjective(Frozen):
    """CE on the start image."""

    kind: Literal["clean"] = Field(description="CE on clean images")


class AdversarialObjective(Frozen):
    """CE on the adversarial image."""

    kind: Literal["adversarial"] = Field(description="CE on adversarial images")


class TradeoffObjective(Frozen):
    """(1 - alpha) CE(clean) + alpha CE(adversarial)."""

    kind: Literal["tradeoff"] = Field(description="a mean of clean and adversarial CE")
    alpha: Fraction = Field(0.75, description="weight of the adversarial CE")


class TradesObjective(Frozen):
    """CE(clean) + beta KL(clean || adversarial)."""

    kind: Literal["trades"] = Field(description="clean CE plus KL from clean to adversarial")
    beta: Positive = Field(6.0, description="weight of the KL term")


Noise = Annotated[NoNoise | SparseNoise, Field(discriminator="kind")]
Labels = Annotated[HardLabels | SmoothedLabels | SelfAdaptiveLabels, Field(discriminator="kind")]
Inner = Annotated[NoInner | SparsePGDInner, Field(discriminator="kind")]
Objective = Annotated[
    CleanObjective | AdversarialObjective | TradeoffObjective | TradesObjective,
    Field(discriminator="kind"),
]
