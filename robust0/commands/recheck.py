"""``robust0 audit --recheck``: every stored hit of a run, once more on its model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from robust0.attacks.judge import judge
from robust0.auditing.guards import enough_memory, exact_kernels
from robust0.auditing.rundata import RunData, read_run
from robust0.commands.replay import open_audited_model
from robust0.errors import UnreliableError
from robust0.events import Transfer
from robust0.models.fast.oracle import Oracle, frozen
from robust0.records import CLEAN, Verdict
from robust0.runs.folder import run_folder
from robust0.runs.subject import RunSubject
from robust0.threats import Threat


@dataclass(frozen=True, slots=True)
class Rechecked:
    """What became of the hits of one attack at one budget; ``clean``: of mistakes without one."""

    attack: str
    budget: float
    hits: int
    hold: int
    close: int  # of those that do not hold: calls so close that rounding may have flipped them

    @property
    def lost(self) -> int:
        """Hits that are none any more, for no reason of rounding."""
        return self.hits - self.hold - self.close

    def row(self) -> dict[str, object]:
        """As a table shows it."""
        return {
            "attack": self.attack, "budget": self.budget, "hits": self.hits, "hold": self.hold,
            "close calls": self.close, "lost": self.lost,
        }  # fmt: skip


def recheck(
    folder: Path,
    factory: str | None,
    device: torch.device,
    data_dir: Path | None,
    progress: Callable[[Transfer], None],
) -> list[Rechecked]:
    """Replay the hits of a finished, untouched run, by attack and budget."""
    run = read_run(run_folder(folder))
    hits = [verdict for verdict in run.verdicts.values() if verdict.fooled]
    wanted = sorted({verdict.image for verdict in hits})
    subject = open_audited_model(run, wanted, factory, device, data_dir, progress)
    stages = sorted({(v.budget, v.attack) for v in hits}, key=lambda stage: (-stage[0], stage[1]))
    settings = run.info.facts.settings
    found = []
    with frozen(subject.network), exact_kernels(), enough_memory(settings.batch_size):
        oracle = Oracle(subject.network, settings.batch_size, device)
        for budget, attack in stages:
            own = [v for v in hits if (v.budget, v.attack) == (budget, attack)]
            threat = Threat.of(budget or settings.budgets[0], settings.unit)
            holds = [*_judged(run, subject, oracle, threat, own)]
            pairs = list(zip(own, holds, strict=True))
            close = sum(not held and verdict.fragile for verdict, held in pairs)
            found.append(Rechecked(attack, budget, len(own), sum(holds), close))
    return found


def require_held(found: Sequence[Rechecked], folder: Path) -> None:
    """Refuse to believe a run some of whose hits were none, or whose model has changed."""
    lost, hits = sum(row.lost for row in found), sum(row.hits for row in found)
    if lost:
        raise UnreliableError(
            f"{lost} of {hits} hits of the run in {folder} do not hold on its model",
            "its numbers cannot be believed: audit the model anew",
        )


def _judged(
    run: RunData, subject: RunSubject, oracle: Oracle, threat: Threat, hits: Sequence[Verdict]
) -> Iterator[bool]:
    """Whether each hit still is one, a model call's worth at a time."""
    data = subject.data
    place = {image: row for row, image in enumerate(data.ids.tolist())}
    for start in range(0, len(hits), oracle.batch_size):
        part = hits[start : start + oracle.batch_size]
        index = torch.tensor([place[verdict.image] for verdict in part], device=data.device)
        clean, labels = data.images(index), data.labels[index]
        attacked = clean
        if part[0].attack != CLEAN:
            painted = [
                run.attempts.paint((verdict.budget, verdict.attack, verdict.image), image)
                for verdict, image in zip(part, clean.cpu().numpy(), strict=True)
            ]
            attacked = torch.from_numpy(np.stack(painted)).to(clean.device)
        yield from judge(oracle, threat, clean, attacked, labels).fooled.tolist()
