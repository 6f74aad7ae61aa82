"""The catastrophic-overfitting watch: does the training attack still say what an attacker would?

A collapsed one-step run looks healthy by its own loss [Fast-LS, Sec. 4], so each epoch ends with
three accuracies on reserved training images: clean, under the training attack, under a probe.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robust0.attacks.engine import Outcome, Waiting, search
from robust0.data.imageset import ImageSet
from robust0.models.fast.oracle import Oracle, frozen
from robust0.rng import Stream
from robust0.training.job import Watch
from robust0.training.methods.base import Method
from robust0.training.methods.inner import Lesson
from robust0.training.methods.labels import one_hot

LEARNED = 0.05  # of the way from chance to perfect: below this nothing has been learned yet
TOLERANCE = 0.02  # training attack may exceed clean accuracy by sampling noise
ROWS = 64


@dataclass(frozen=True, slots=True)
class Reading:
    """Accuracies in [0, 1] on the same reserved images."""

    images: int
    clean: float
    training_attack: float | None
    probe: float


def read(
    network: nn.Module, data: ImageSet, rows: Tensor, method: Method, watch: Watch, seed: int
) -> Reading:
    """Measure the three accuracies on ``rows``; the network is left as it was."""
    with frozen(network):
        device = next(network.parameters()).device
        oracle = Oracle(network, ROWS, device)
        logits = torch.cat([oracle.exact(data.images(part)) for part in rows.split(ROWS)])
        labels = data.labels[rows]
        correct = logits.argmax(dim=1) == labels
        attacked = _under_training_attack(
            network, oracle, data, rows, method, logits.shape[1], seed
        )
        alive = rows[correct].tolist()
        for name, attack in watch.attacks:
            waiting = Waiting(alive, lambda positions: _fetch(data, positions))
            outcomes = search(attack, name, oracle, waiting, watch.threat, seed)
            fallen = {o.image for o in outcomes if isinstance(o, Outcome) and o.fooled}
            alive = [row for row in alive if int(data.ids[row]) not in fallen]
    return Reading(len(rows), correct.float().mean().item(), attacked, len(alive) / len(rows))


def _under_training_attack(
    network: nn.Module, oracle: Oracle, data: ImageSet, rows: Tensor, method: Method,
    classes: int, seed: int,
) -> float | None:  # fmt: skip
    attack = method.watched()
    if attack is None:
        return None
    hits = 0
    for number, part in enumerate(rows.split(ROWS)):
        labels = data.labels[part]
        lesson = Lesson(
            data.images(part), one_hot(labels, classes), labels, data.ids[part],
            Stream.of("watch", seed), projected=number % 2 == 0, threat=method.threat,
        )  # fmt: skip
        answers = oracle.exact(attack(network, lesson))
        hits += int((answers.argmax(dim=1) == labels).sum())
    return hits / len(rows)


def _fetch(data: ImageSet, positions: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    index = torch.tensor(positions, device=data.labels.device)
    return data.images(index), data.labels[index], data.ids[index]


def alarm(reading: Reading, best_probe: float, classes: int, collapse: float) -> str | None:
    """Why this reading looks like catastrophic overfitting, or None."""
    attacked, learned = reading.training_attack, (1 + LEARNED * (classes - 1)) / classes
    if attacked is None:
        return None  # trained without an attack, to which nothing can overfit
    if attacked >= learned and attacked > reading.clean + TOLERANCE:
        return (
            f"accuracy under the training attack ({attacked:.1%}) exceeds clean accuracy "
            f"({reading.clean:.1%})"
        )
    # A low probe says something only where there was accuracy to lose.
    if reading.probe < collapse and reading.clean >= max(learned, 2 * collapse):
        return f"probe accuracy collapsed to {reading.probe:.1%}"
    if best_probe >= learned and reading.probe < best_probe / 2 - TOLERANCE:
        return f"probe accuracy fell from {best_probe:.1%} to {reading.probe:.1%}"
    return None
