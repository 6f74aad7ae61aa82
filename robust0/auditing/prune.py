"""Gives back the sites that a verified hit does not need, so that the count left says something."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robust0.attacks.engine import Attempt
from robust0.attacks.judge import judge
from robust0.losses import margin
from robust0.models.oracle import Oracle
from robust0.threat import Threat


@dataclass(frozen=True, slots=True)
class Pruned:
    """A hit with fewer sites, and what the judge says about it."""

    attempt: Attempt
    fooled: bool  # false only if the model answers the same question in two ways
    sites: int
    prediction: int
    margin: float
    fragile: bool
    violation: str


@dataclass(slots=True)
class _Trial:
    """One hit being pruned: sites in the order in which they are tried, and how far that is."""

    order: list[int]
    at: int = 0
    size: int = 0
    tries: int = 0

    def chunk(self) -> list[int]:
        return self.order[self.at : self.at + self.size]

    def told(self, *, holds: bool) -> None:
        """Move on after a trial; halves first, then single sites."""
        self.tries += 1
        if holds or self.size == 1:
            self.at += self.size
            self.size = min(self.size, len(self.order) - self.at)
        else:
            self.size //= 2

    @property
    def done(self) -> bool:
        # One site must stay: the clean image is classified correctly.
        return self.size == 0 or self.tries >= len(self.order)


def prune(
    oracle: Oracle, threat: Threat, clean: Tensor, attempts: Sequence[Attempt], labels: Tensor
) -> list[Pruned]:
    """Prune verified hits on clean (B, C, H, W) images; at most one forward per site of a hit.

    A site is given back if the judge still calls the image fooled, and not by a hair: what is
    stored must not flip where it is loaded. Rows do not influence one another.
    """
    painted = [attempt.paint(image, threat) for attempt, image in zip(attempts, clean, strict=True)]
    current = torch.stack(painted)
    trials = [
        _Trial(order, size=max(1, len(order) // 2))
        for order in _orders(oracle, threat, clean, current, attempts, labels)
    ]
    while True:
        active = [row for row, trial in enumerate(trials) if not trial.done]
        if not active:
            break
        for first in range(0, len(active), oracle.rows):
            rows = active[first : first + oracle.rows]
            _try(oracle, threat, clean, current, labels, {row: trials[row] for row in rows})
    return _verified(oracle, threat, clean, current, labels)


def _orders(
    oracle: Oracle, threat: Threat, clean: Tensor, current: Tensor, attempts: Sequence[Attempt],
    labels: Tensor,
) -> list[list[int]]:  # fmt: skip
    """Each hit's sites, first those whose return changes the margin least, to first order."""
    slopes = []
    for part, wanted in zip(
        current.split(oracle.rows), labels.split(oracle.rows), strict=True
    ):  # a gradient call takes at most so many rows

        def objective(logits: Tensor, wanted: Tensor = wanted) -> Tensor:
            return margin(logits, wanted)

        slopes.append(oracle.gradient(part, objective)[1])
    effect = (threat.view(torch.cat(slopes)) * threat.view(clean - current)).sum(dim=1)
    orders = []
    for row, attempt in enumerate(attempts):
        sites = attempt.sites.to(effect.device)
        ranks = effect[row, sites].cpu().argsort(stable=True)
        orders.append(attempt.sites[ranks].tolist())
    return orders


def _try(
    oracle: Oracle, threat: Threat, clean: Tensor, current: Tensor, labels: Tensor,
    trials: dict[int, _Trial],
) -> None:  # fmt: skip
    """One round for some rows: give a chunk of sites back where the hit survives that."""
    index = torch.tensor(list(trials), device=clean.device)
    candidates = threat.view(current[index]).clone()
    originals = threat.view(clean[index])
    back = torch.zeros(candidates.shape[0], candidates.shape[2], dtype=torch.bool)
    for row, trial in enumerate(trials.values()):
        back[row, trial.chunk()] = True
    candidates = torch.where(back[:, None].to(clean.device), originals, candidates)
    images = candidates.reshape(len(index), *clean.shape[1:])
    verdict = judge(oracle, threat, clean[index], images, labels[index])
    holds = verdict.fooled & ~verdict.fragile
    current[index] = torch.where(holds[:, None, None, None], images, current[index])
    for trial, kept in zip(trials.values(), holds.tolist(), strict=True):
        trial.told(holds=kept)


def _verified(
    oracle: Oracle, threat: Threat, clean: Tensor, current: Tensor, labels: Tensor
) -> list[Pruned]:
    """The final images as the judge sees them, sparse again."""
    verdict = judge(oracle, threat, clean, current, labels)
    columns = zip(
        threat.view(clean).cpu(), threat.view(current).cpu(), verdict.fooled.tolist(),
        verdict.sites.tolist(), verdict.prediction.tolist(), verdict.margin.tolist(),
        verdict.fragile.tolist(), verdict.violation, strict=True,
    )  # fmt: skip
    found = []
    for before, after, *facts in columns:
        sites = (before != after).any(dim=0).nonzero()[:, 0]
        found.append(Pruned(Attempt(sites, after[:, sites]), *facts))
    return found
