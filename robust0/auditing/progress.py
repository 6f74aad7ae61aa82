"""Counts while an audit runs: what each attack has broken, and how much work is behind it."""

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from robust0.attacks.calls import Pulse
from robust0.attacks.engine import Outcome
from robust0.auditing.interval import accuracy
from robust0.auditing.job import AuditJob
from robust0.auditing.plan import Stage
from robust0.events import AuditProgress, HitFound, Standing
from robust0.records import CLEAN, Accuracy, Amount, Verdict
from robust0.units import counted


@dataclass(slots=True)
class PassMeter:
    """Work in passes. An image that falls early counts as done in full; nothing runs backwards."""

    passes: dict[Stage, int]  # the most an image can cost
    behind: int = 0  # of the stages before this one
    total: int = 0  # of this stage
    done: int = 0
    ahead: int = 0  # of the stages after it, at most
    _best: float = 0.0
    _limit: int = 1

    def open(self, stage: Stage, images: int, known: int, ahead: int) -> None:
        """Begin a stage; ``known`` of its images have verdicts already."""
        self.behind += self.total
        self._limit = self.passes[stage]
        self.total, self.done, self.ahead = images * self._limit, known * self._limit, ahead

    def pulse(self, event: Pulse) -> None:
        """One model call of the search."""
        self.done += event.rows * (2 if event.gradient else 1)

    def finish(self, outcome: Outcome) -> None:
        """An image needs no more passes."""
        self.done += max(0, self._limit - outcome.forwards - outcome.backwards)

    def close(self) -> None:
        """The stage is over, whatever its passes added up to."""
        self.done = self.total

    def stage_share(self) -> float:
        """Of this stage, 0 to 1."""
        return min(1.0, self.done / self.total) if self.total else 1.0

    def share(self) -> float:
        """Of everything, 0 to 1."""
        whole = self.behind + self.total + self.ahead
        now = (self.behind + min(self.done, self.total)) / whole if whole else 1.0
        self._best = max(self._best, now)
        return self._best


def hit_found(
    hit: tuple[str, Outcome] | None, job: AuditJob, position: Mapping[int, int]
) -> HitFound | None:
    """The latest hit as views draw it; ``position``: where in the job's data an image is."""
    if hit is None:
        return None
    (attack, outcome), names, data = hit, job.facts.class_names, job.data
    index = torch.tensor([position[outcome.image]], device=data.device)
    values = data.images(index)[0].cpu().numpy()
    return HitFound(
        attack=attack,
        image=outcome.image,
        label=names[outcome.label],
        prediction=names[outcome.prediction],
        changed=counted(outcome.distance, job.facts.settings.unit),
        shape=values.shape,
        clean=_bytes(values),
        adversarial=_bytes(outcome.attempt.paint(values)),
    )


def _bytes(image: npt.NDArray[np.float32]) -> bytes:
    return (image * 255).round().astype(np.uint8).tobytes()


@dataclass(slots=True)
class Tally:
    """What attacks have done so far, by stage."""

    images: int
    broken: dict[Stage, set[int]] = field(default_factory=dict)
    needed: dict[str, dict[int, Amount]] = field(default_factory=dict)  # by attack and image
    passes: dict[Stage, list[int]] = field(default_factory=dict)
    latest: tuple[str, Outcome] | None = None  # hit, and the attack that found it

    def count(self, stage: Stage, outcome: Outcome) -> None:
        """An image of this process is through."""
        self._add(stage, outcome.image, outcome.forwards + outcome.backwards, hit=outcome.fooled)
        self.latest = (stage[1], outcome) if outcome.fooled else self.latest

    def restore(self, verdicts: list[Verdict]) -> None:
        """Verdicts of an earlier run, or of other processes."""
        for verdict in verdicts:
            if verdict.attack != CLEAN:
                self.learn([verdict])
                stage = (verdict.budget, verdict.attack)
                used = verdict.forwards + verdict.backwards
                self._add(stage, verdict.image, used, hit=verdict.fooled)

    def learn(self, verdicts: list[Verdict]) -> None:
        """How little each hit needs: it counts at every budget that it fits."""
        for verdict in verdicts:
            if verdict.fooled and verdict.attack != CLEAN:
                own = self.needed.setdefault(verdict.attack, {})
                own[verdict.image] = min(verdict.needed, own.get(verdict.image, verdict.needed))

    def _add(self, stage: Stage, image: int, passes: int, *, hit: bool) -> None:
        self.passes.setdefault(stage, []).append(passes)
        broken = self.broken.setdefault(stage, set())
        if hit:
            broken.add(image)

    def standing(
        self, stage: Stage, wanted: int, share: float, *, correct: int, cascade: bool
    ) -> Standing:
        """One attack so far."""
        budget, attack = stage
        times = self._times(budget)
        passes = self.passes.get(stage, [])
        hits = self.broken.get(stage, set()) if cascade else self._hits(budget).get(attack, set())
        return Standing(
            attack=attack,
            images=wanted,
            finished=len(passes),
            broken=len(hits),
            only=None if cascade else sum(times[image] == 1 for image in hits),
            robust=None if cascade else accuracy(correct - len(hits), self.images),
            passes=float(statistics.median(passes)) if passes else None,
            share=share,
        )

    def survivors(self, budget: Amount, correct: int) -> Accuracy:
        """Images that nothing has broken at this budget."""
        return accuracy(correct - len(self._times(budget)), self.images)

    def progress(
        self,
        budget: Amount,
        share: float,
        standings: tuple[Standing, ...],
        correct: int,
        hit: HitFound | None = None,
    ) -> AuditProgress:
        """The event that views draw."""
        return AuditProgress(budget, share, self.survivors(budget, correct), standings, hit)

    def _times(self, budget: Amount) -> Counter[int]:
        """How many attacks broke each image at this budget."""
        return Counter(image for broken in self._hits(budget).values() for image in broken)

    def _hits(self, budget: Amount) -> dict[str, set[int]]:
        """By attack: what fell at this budget, or elsewhere to a hit that fits it."""
        found = {
            attack: {image for image, least in own.items() if least <= budget}
            for attack, own in self.needed.items()
        }
        for (at, attack), broken in self.broken.items():
            if at == budget:
                found.setdefault(attack, set()).update(broken)
        return found
