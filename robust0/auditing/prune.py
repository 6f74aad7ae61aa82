"""Gives back the sites that a verified hit does not need, so that the count left says something."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import torch
from torch import Tensor

from robust0.attacks.engine import Attempt
from robust0.attacks.judge import judge, spread
from robust0.losses import margin
from robust0.models.fast.oracle import Oracle
from robust0.threat import Threat

HOLDS = 0.3  # how often a hit holds without a chunk, about; only the number of calls depends on it


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


@dataclass(frozen=True, slots=True)
class _Trial:
    """The next question about a hit: does it hold without these sites too?"""

    order: tuple[int, ...]  # its sites, in the order in which they are tried
    size: int  # of the chunk asked about
    at: int = 0
    given: tuple[int, ...] = ()  # back already
    tries: int = 0

    def without(self) -> list[int]:
        return [*self.given, *self.order[self.at : self.at + self.size]]

    def told(self, *, holds: bool) -> "_Trial":
        """The question after this one; halves first, then single sites."""
        at, size, given = self.at, self.size // 2, self.given
        if holds or self.size == 1:
            at += self.size
            size = min(self.size, len(self.order) - at)
            given = tuple(self.without()) if holds else given
        return _Trial(self.order, size, at, given, self.tries + 1)

    def ahead(self, count: int) -> "list[_Trial]":
        """This question and those that may follow, the likeliest first; at most ``count``."""
        found: list[_Trial] = []
        heap = [(-1.0, 0, self)]
        while heap and len(found) < count:
            chance, _, trial = heappop(heap)
            found.append(trial)
            for holds, share in ((False, 1 - HOLDS), (True, HOLDS)):
                after = trial.told(holds=holds)
                if not after.done:
                    heappush(heap, (chance * share, 2 * len(found) + holds, after))
        return found

    @property
    def done(self) -> bool:
        # One site must stay: the clean image is classified correctly.
        return self.size == 0 or self.tries >= len(self.order)


def prune(
    oracle: Oracle, threat: Threat, clean: Tensor, attempts: Sequence[Attempt], labels: Tensor
) -> list[Pruned]:
    """Prune verified hits on clean (B, C, H, W) images; at most one call per site of a hit.

    A site is given back if the judge still calls the image fooled, and not by a hair: what is
    stored must not flip where it is loaded. Rows do not influence one another: those that a call
    has to spare ask ahead, which saves calls and changes no answer.
    """
    scale = spread(oracle.exact(clean))
    painted = [attempt.paint(image, threat) for attempt, image in zip(attempts, clean, strict=True)]
    hits = torch.stack(painted)
    trials = [
        _Trial(tuple(order), max(1, len(order) // 2))
        for order in _orders(oracle, threat, clean, hits, attempts, labels)
    ]
    while active := [row for row, trial in enumerate(trials) if not trial.done]:
        for first in range(0, len(active), oracle.rows):
            rows = active[first : first + oracle.rows]
            asked = [(r, t) for r in rows for t in trials[r].ahead(oracle.rows // len(rows))]
            holds = _ask(oracle, threat, clean, hits, labels, scale, asked)
            for row in rows:
                while (answer := holds.get((row, trials[row]))) is not None:
                    trials[row] = trials[row].told(holds=answer)
    rest = [(row, trial.given) for row, trial in enumerate(trials)]
    return _verified(oracle, threat, clean, _less(threat, clean, hits, rest), labels, scale)


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


def _ask(
    oracle: Oracle, threat: Threat, clean: Tensor, hits: Tensor, labels: Tensor, scale: Tensor,
    asked: Sequence[tuple[int, _Trial]],
) -> dict[tuple[int, _Trial], bool]:  # fmt: skip
    """One call: which of these hold without the sites they are asked about."""
    index = torch.tensor([row for row, _ in asked], device=clean.device)
    images = _less(threat, clean, hits, [(row, trial.without()) for row, trial in asked])
    verdict = judge(oracle, threat, clean[index], images, labels[index], scale[index])
    return dict(zip(asked, (verdict.fooled & ~verdict.fragile).tolist(), strict=True))


def _less(
    threat: Threat, clean: Tensor, hits: Tensor, given: Sequence[tuple[int, Sequence[int]]]
) -> Tensor:
    """Hits, by row, with some sites as they were in the clean image."""
    index = torch.tensor([row for row, _ in given], device=clean.device)
    before, after = threat.view(clean[index]), threat.view(hits[index])
    back = torch.zeros(after.shape[0], 1, after.shape[2], dtype=torch.bool)
    for place, (_, sites) in enumerate(given):
        back[place, :, list(sites)] = True
    return torch.where(back.to(clean.device), before, after).reshape(-1, *clean.shape[1:])


def _verified(
    oracle: Oracle, threat: Threat, clean: Tensor, current: Tensor, labels: Tensor, scale: Tensor
) -> list[Pruned]:
    """The final images as the judge sees them, sparse again."""
    verdict = judge(oracle, threat, clean, current, labels, scale)
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
