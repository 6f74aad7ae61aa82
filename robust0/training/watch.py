"""The catastrophic-overfitting watch: does the training attack still say what an attacker would?

A collapsed one-step run looks healthy by its own loss [Fast-LS, Sec. 4], so each epoch ends with
three accuracies on reserved training images: clean, under the training attack, under a probe. Of a
classifier that can be certified, the accuracy that is proved takes the place of the probe.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robust0.attacks.engine import Outcome, Waiting, search
from robust0.data.imageset import ImageSet
from robust0.events import Watching
from robust0.models.fast.oracle import Oracle, frozen
from robust0.rng import Stream
from robust0.training.job import Watch
from robust0.training.methods.base import Method
from robust0.training.methods.inner import Lesson
from robust0.training.methods.labels import one_hot
from robust0.training.proving import proved_accuracy

LEARNED = 0.05  # of the way from chance to perfect: below this nothing has been learned yet
TOLERANCE = 0.02  # accuracies this close are alike
TELLING = 6  # times a collapsed probe: accuracy under the training attack that contradicts it
ROWS = 64


@dataclass(frozen=True, slots=True)
class Reading:
    """Accuracies in [0, 1] on the same reserved images."""

    images: int
    clean: float
    training_attack: float | None
    probe: float  # images that no attack of the probe breaks
    flips: float = 0.0  # images right either clean or under the training attack, but not both
    proved: bool = False  # the probe is a certificate

    @property
    def score(self) -> float:
        """What the best checkpoint is chosen by; without an attack to withstand, clean accuracy."""
        return self.clean if self.training_attack is None and not self.proved else self.probe


def read(
    network: nn.Module, data: ImageSet, rows: Tensor, method: Method, watch: Watch, seed: int
) -> Generator[Watching, None, Reading]:
    """Measure the three accuracies on ``rows``, saying how far it is; the network stays as it was.

    The attacks of the probe share the images: the next one meets what the one before left standing.
    """
    model = method.classifier(network, data.image_shape, len(data.class_names))
    if model is not None:
        clean, proved = proved_accuracy(model, data, rows, int(watch.threat.budget))
        return Reading(len(rows), clean, None, proved, proved=True)
    with frozen(network):
        device = next(network.parameters()).device
        oracle = Oracle(network, ROWS, device)
        logits = torch.cat([oracle.exact(data.images(part)) for part in rows.split(ROWS)])
        labels = data.labels[rows]
        correct = logits.argmax(dim=1) == labels
        yield Watching("the training attack", 0, len(rows))
        attacked = _under_training_attack(
            network, oracle, data, rows, method, logits.shape[1], seed
        )
        alive = rows[correct].tolist()
        for name, attack in watch.attacks:
            waiting = Waiting(alive, lambda positions: _fetch(data, positions))
            fallen: set[int] = set()
            done = 0
            yield Watching(name, done, len(alive))
            for outcome in search(attack, name, oracle, waiting, watch.threat, seed):
                if isinstance(outcome, Outcome):
                    done += 1
                    fallen |= {outcome.image} if outcome.fooled else set()
                    yield Watching(name, done, len(alive))
            alive = [row for row in alive if int(data.ids[row]) not in fallen]
    return Reading(
        images=len(rows),
        clean=correct.float().mean().item(),
        training_attack=None if attacked is None else attacked.float().mean().item(),
        probe=len(alive) / len(rows),
        flips=0.0 if attacked is None else (attacked != correct).float().mean().item(),
    )


def _under_training_attack(
    network: nn.Module, oracle: Oracle, data: ImageSet, rows: Tensor, method: Method,
    classes: int, seed: int,
) -> Tensor | None:  # fmt: skip
    """(N,) which images are classified correctly under the training attack, if there is one."""
    attack = method.watched()
    if attack is None:
        return None
    hits = []
    for number, part in enumerate(rows.split(ROWS)):
        labels = data.labels[part]
        lesson = Lesson(
            data.images(part), one_hot(labels, classes), labels, data.ids[part],
            Stream.of("watch", seed), projected=number % 2 == 0, threat=method.threat,
        )  # fmt: skip
        answers = oracle.exact(attack(network, lesson))
        hits.append(answers.argmax(dim=1) == labels)
    return torch.cat(hits)


def _fetch(data: ImageSet, positions: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    index = torch.tensor(positions, device=data.labels.device)
    return data.images(index), data.labels[index], data.ids[index]


def _noise(reading: Reading) -> float:
    """How far the training attack may exceed clean accuracy by chance: three deviations, paired."""
    return max(TOLERANCE, 3 * math.sqrt(reading.flips / reading.images))


def alarm(reading: Reading, best_probe: float, classes: int, collapse: float) -> str | None:
    """Why this reading looks like catastrophic overfitting, or None."""
    attacked, learned = reading.training_attack, (1 + LEARNED * (classes - 1)) / classes
    if attacked is None:
        return None  # trained without an attack, to which nothing can overfit
    if attacked >= learned and attacked > reading.clean + _noise(reading):
        return (
            f"accuracy under the training attack ({attacked:.1%}) exceeds clean accuracy "
            f"({reading.clean:.1%})"
        )
    # A young network falls to both attacks; a collapsed one looks robust to its own alone.
    if reading.probe < collapse and attacked >= max(learned, TELLING * collapse):
        return (
            f"probe accuracy collapsed to {reading.probe:.1%}, under the training attack it is "
            f"{attacked:.1%}"
        )
    if best_probe >= learned and reading.probe < best_probe / 2 - TOLERANCE:
        return f"probe accuracy fell from {best_probe:.1%} to {reading.probe:.1%}"
    return None
