"""What can be certified, and how: one certifier for each kind of classifier.

A certifier may prove things about several classifiers that share one network: three rules over the
same views, one cover for each number of pixels. Each is a classifier of its own, with answers and
radii of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, get_args

from torch import Tensor, nn

from robust0.certificates import votes
from robust0.certificates.ablation import Ablation
from robust0.certificates.masks import DoubleMasking, Mask
from robust0.errors import ModelError
from robust0.models.voting import AblationSmoothing, MaskCover, Rule, ViewVoting
from robust0.proofs import Answer, Detail

Kind = Literal["partition-vote", "masks", "ablation"]
MOST_COVERED = 3  # pixels beyond which covers cost too many looks
_SAMPLES = 256  # masked copies of an image counted at a time
_WHAT = (
    "a proof needs a classifier that votes over views, looks under masks or is smoothed by "
    "ablation: train one with robust0 harden --method partition-vote; robust0 audit gives an upper "
    "bound for any network"
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How ablation samples: first to choose a class, then afresh to bound it."""

    choose: int = 1000
    bound: int = 10000
    alpha: float = 0.05
    condition: Literal["half", "gap"] = "half"


class Certifier(ABC):
    """Proves what can be proved about images; a pure function of each image (and its id)."""

    kind: ClassVar[Kind]
    deterministic: ClassVar[bool] = True  # whether an attack can refute a certificate

    names: tuple[str, ...]  # of the classifiers, the headline first

    @abstractmethod
    def prove(self, images: Tensor, ids: Tensor) -> list[dict[str, Answer]]:
        """For each image, the answer of every classifier and its certified radius."""

    @abstractmethod
    def classifier(self, name: str) -> nn.Module:
        """The classifier of this name, as an attack sees it."""

    @abstractmethod
    def details(self) -> dict[str, Detail]:
        """What the proof rests on beside the weights."""

    def expected_false(self, images: int) -> float | None:  # noqa: ARG002 - a proof needs none
        """At most this many false certificates, on average; None: none at all."""
        return None


class VoteCertifier(Certifier):
    """Three rules over the same views."""

    kind: ClassVar[Kind] = "partition-vote"

    def __init__(self, network: ViewVoting) -> None:
        self.network = network
        rules = (network.rule, *(rule for rule in get_args(Rule) if rule != network.rule))
        self.names = rules
        self._rules: dict[str, ViewVoting] = {rule: _with_rule(network, rule) for rule in rules}

    def prove(self, images: Tensor, ids: Tensor) -> list[dict[str, Answer]]:  # noqa: ARG002
        """The views are classified once; every rule decides on the same logits."""
        logits = self.network.view_logits(images)
        proofs: list[dict[str, Answer]] = [{} for _ in images]
        for name, rule in self._rules.items():
            found = rule.decide(logits)
            columns = zip(proofs, found.labels.tolist(), found.radius.tolist(), strict=True)
            for proof, label, radius in columns:
                proof[name] = Answer(label=label, radius=radius)
        return proofs

    def classifier(self, name: str) -> nn.Module:
        """The same network under another rule."""
        return self._rules[name]

    def details(self) -> dict[str, Detail]:
        """The partition, and whether views are looked at in a mirror too."""
        partition: Any = self.network.partition
        known: dict[str, Detail] = {"partition": partition.kind, **asdict(partition)}
        return known | {"views": partition.views, "mirror": self.network.mirror}


class MaskCertifier(Certifier):
    """One classifier for each number of pixels that its masks can hide."""

    kind: ClassVar[Kind] = "masks"

    def __init__(self, network: MaskCover, pixels: Sequence[int]) -> None:
        self.network = network
        most = min(MOST_COVERED, network.groups)
        others = sorted({p for p in pixels if p <= most} - {network.pixels})
        self._covers = {f"masks-{p}": p for p in (network.pixels, *others)}
        self.names = tuple(self._covers)

    def prove(self, images: Tensor, ids: Tensor) -> list[dict[str, Answer]]:  # noqa: ARG002
        """Each image by itself: a certificate stops at the first union that dissents."""
        return [self._one(image[None]) for image in images]

    def _one(self, image: Tensor) -> dict[str, Answer]:
        seen: dict[Mask, int] = {}

        def classify(masks: Sequence[Mask]) -> list[int]:
            new = [mask for mask in masks if mask not in seen]
            if new:
                logits = self.network.mask_logits(image, new)
                seen.update(
                    zip(new, votes.leader(votes.quantised(logits))[0].tolist(), strict=True)
                )
            return [seen[mask] for mask in masks]

        found = {}
        for name, pixels in self._covers.items():
            cover = DoubleMasking(lattices=self.network.groups, pixels=pixels)
            proved = cover.certify(classify).label
            label = cover.answer(classify).label if proved is None else proved
            found[name] = Answer(label=label, radius=0 if proved is None else pixels)
        return found

    def classifier(self, name: str) -> nn.Module:
        """The same network under masks for another number of pixels."""
        known = self.network
        return MaskCover(known.network, known.lattices, self._covers[name], known.classes)

    def details(self) -> dict[str, Detail]:
        """The lattices."""
        return {"groups": self.network.groups, **asdict(self.network.lattices)}


class AblationCertifier(Certifier):
    """The smoothed classifier, whose probabilities can only be estimated."""

    kind: ClassVar[Kind] = "ablation"
    deterministic: ClassVar[bool] = False

    def __init__(
        self, network: AblationSmoothing, image_shape: tuple[int, int, int], sampling: Sampling
    ) -> None:
        self.network, self.names = network, ("ablation",)
        self.rule = Ablation(
            pixels=image_shape[1] * image_shape[2],
            keep=network.keep,
            choose=sampling.choose,
            bound=sampling.bound,
            alpha=sampling.alpha,
            condition=sampling.condition,
        )

    def prove(self, images: Tensor, ids: Tensor) -> list[dict[str, Answer]]:
        """The class is chosen on some samples and bounded on fresh ones."""
        chosen = self._counted(images, ids, self.rule.choose, "choose")
        bounded = self._counted(images, ids, self.rule.bound, "bound")
        proofs = []
        for first, second in zip(chosen.tolist(), bounded.tolist(), strict=True):
            made = self.rule.decide(first, second)
            answer = Answer(label=made.label, radius=made.radius, low=made.low, high=made.high)
            proofs.append({"ablation": answer})
        return proofs

    def _counted(
        self, images: Tensor, ids: Tensor, samples: int, purpose: Literal["choose", "bound"]
    ) -> Tensor:
        numbers = range(samples)
        parts = [numbers[start : start + _SAMPLES] for start in range(0, samples, _SAMPLES)]
        return sum(
            (self.network.counts(images, ids, part, purpose) for part in parts[1:]),
            start=self.network.counts(images, ids, parts[0], purpose),
        )

    def classifier(self, name: str) -> nn.Module:  # noqa: ARG002 - there is one
        """A stand-in that answers from few samples; the smoothed classifier cannot be called."""
        return self.network

    def details(self) -> dict[str, Detail]:
        """All that the bounds depend on."""
        return asdict(replace(self.rule)) | {"seed": str(self.network.seed)}

    def expected_false(self, images: int) -> float | None:
        """Alpha of the images tried."""
        return self.rule.expected_false(images)


def certifier_of(
    network: nn.Module,
    image_shape: tuple[int, int, int],
    pixels: Sequence[int],
    sampling: Sampling,
    shown: str,
) -> Certifier:
    """The certifier for a network; refuses one about which nothing can be proved."""
    match network:
        case ViewVoting():
            return VoteCertifier(network)
        case MaskCover():
            return MaskCertifier(network, pixels)
        case AblationSmoothing():
            return AblationCertifier(network, image_shape, sampling)
        case _:
            raise ModelError(
                f"nothing can be certified about {shown}: it is a plain network", _WHAT
            )


def _with_rule(network: ViewVoting, rule: Rule) -> ViewVoting:
    """The same views and weights under another rule; modules are shared, not copied."""
    other = copy(network)
    other.rule = rule
    return other
