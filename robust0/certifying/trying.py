"""Certificates under attack: guided-swap and sparse-rs, each image within its own radius.

One success would mean that a proof, or the code that computes it, is wrong.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robust0.attacks.base import Attack
from robust0.attacks.engine import Outcome, Waiting, search
from robust0.data.imageset import ImageSet
from robust0.models.fast.oracle import Oracle
from robust0.proofs import Proof, Trial
from robust0.threats import Threat

ATTACKS = ("guided-swap", "sparse-rs")


@dataclass(frozen=True, slots=True)
class Group:
    """Images whose answers have the same certified radius: rows of one search share a threat."""

    classifier: str
    radius: int
    images: tuple[int, ...]


def tried_proofs(proofs: Sequence[Proof], classifier: str, most: int, rows: int) -> list[Group]:
    """Up to ``most`` certified answers, by radius.

    Radii take turns, the most frequent first, each with one call's worth of rows, so that few
    images make full calls and many cover every radius. Wrong answers are certified too, and tried.
    """
    by_radius: dict[int, list[int]] = {}
    for proof in proofs:
        answer = proof.answers[classifier]
        if answer.label is not None and answer.radius > 0:
            by_radius.setdefault(answer.radius, []).append(proof.image)
    order = sorted(by_radius, key=lambda radius: (-len(by_radius[radius]), radius))
    taken: dict[int, list[int]] = {}
    left = most
    while left > 0 and any(by_radius.values()):
        for radius in order:
            part = by_radius[radius][: min(rows, left)]
            by_radius[radius] = by_radius[radius][len(part) :]
            if part:
                taken.setdefault(radius, []).extend(part)
            left -= len(part)
    return [Group(classifier, radius, tuple(taken[radius])) for radius in sorted(taken)]


def attack_group(
    group: Group,
    named: tuple[str, Attack[Any]],
    oracle: Oracle,
    data: ImageSet,
    answers: dict[int, int],
    seed: int,
) -> Iterator[Trial | None]:
    """Attack the answers of a group; None is a sign of life between outcomes.

    Args:
        group: whose certificates are tried.
        named: the attack and its configured name.
        oracle: the door to the classifier.
        data: holds the images of the group.
        answers: what the classifier says of each image; the attack must change that.
        seed: of the attack's draws.
    """
    name, attack = named
    place = {image: row for row, image in enumerate(data.ids.tolist())}

    def fetch(positions: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        index = torch.tensor(positions, device=data.device)
        ids = data.ids[index]
        labels = torch.tensor([answers[image] for image in ids.tolist()], device=data.device)
        return data.images(index), labels, ids

    waiting = Waiting([place[image] for image in group.images], fetch)
    threat = Threat.of(group.radius)
    for event in search(attack, name, oracle, waiting, threat, seed):
        if not isinstance(event, Outcome):
            yield None
            continue
        yield Trial(
            classifier=group.classifier,
            attack=name,
            revision=attack.revision,
            image=event.image,
            answer=event.label,
            radius=group.radius,
            broke=event.fooled,
            prediction=event.prediction,
            forwards=event.forwards,
            backwards=event.backwards,
        )
