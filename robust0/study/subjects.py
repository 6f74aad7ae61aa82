"""What every part of a study is about: named networks with their attacks, on the same images."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from robust0.models.fast.oracle import Oracle, frozen
from robust0.study.perturb import ROWS, Perturber, StudyImages, class_count

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StudySubject:
    """A network under a name, and the attacks it is studied with."""

    label: str
    network: nn.Module
    identity: str  # of its weights
    attacks: tuple[Perturber, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)  # method, epoch, audit: into the result


@dataclass(frozen=True, slots=True)
class StudyScope:
    """The networks, the images and the seed of a part."""

    models: Sequence[StudySubject]
    data: StudyImages
    fingerprint: str  # of the images
    seed: int

    def __post_init__(self) -> None:
        for model in self.models:
            classes = class_count(model.network, self.data)
            for attack in model.attacks:
                attack.passes(self.data, classes)
                if attack.threat is not None:
                    attack.threat.check(self.data.images)

    def identity(self, **settings: Any) -> Json:  # noqa: ANN401 - plain JSON
        """What a result depends on."""
        models = [
            {
                "label": model.label,
                "weights": model.identity,
                "attacks": [_described(attack) for attack in model.attacks],
            }
            for model in self.models
        ]
        return {
            "models": models,
            "images": len(self.data),
            "data": self.fingerprint,
            "seed": self.seed,
            "device": self.data.images.device.type,
            "torch": torch.__version__,
            **settings,
        }

    def forward_seconds(self, network: nn.Module) -> float:
        """What a forward of one image takes now, from one call."""
        images = self.data.images[:ROWS]
        with frozen(network):
            oracle = Oracle(network, ROWS, images.device)
            oracle.exact(images)
            begun = time.perf_counter()
            oracle.exact(images)
        return (time.perf_counter() - begun) / ROWS


def _described(attack: Perturber) -> str:
    """Everything that decides an attack's perturbations, as text."""
    return f"{attack.label}: {attack!r}"


def spoken_duration(seconds: float) -> str:
    """A rough time in words."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} seconds"
    minutes = seconds / 60
    return f"about {round(minutes)} minutes" if minutes < 90 else f"about {minutes / 60:.1f} hours"
