"""Asks a model some of its questions again at the end of a run: do its answers still stand?

A model may count its calls, remember what it was asked, or change while it answers. Then verdicts
are about a model that is no longer there, and a search may have talked to yet another one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from robust0.auditing.attempts import Attempts
from robust0.auditing.flags import varies
from robust0.losses import margin
from robust0.models.fast.oracle import Oracle, checked_finite
from robust0.records import Flag, Verdict

PER_STAGE = 4  # hits of each attack and budget that are asked about again
TOLERANCE = 1e-3  # of a row's spread of logits; rounding moves a margin far less
UNSTEADY = frozenset({"randomised-model", "batch-dependent-model", "stateful-model"})


class Recall:
    """What a model said in the course of a run, for the questions at its end."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._images, self._answers = torch.empty(0), list[Tensor]()
        self._hits: list[tuple[Verdict, Tensor]] = []
        self._kept: Counter[tuple[float, str]] = Counter()

    def open(self, images: Tensor) -> None:
        """Hear what every lane of the search says at the start; compiled code remembers nothing."""
        self._images = images
        self._answers = self._searched()

    def hear(
        self,
        verdicts: Sequence[Verdict],
        attempts: Attempts,
        images_of: Callable[[Sequence[int]], tuple[Tensor, Tensor]],
    ) -> None:
        """Remember the first hits of every stage, and what was said about them."""
        for verdict in verdicts:
            stage = verdict.budget, verdict.attack
            if verdict.fooled and not verdict.violation and self._kept[stage] < PER_STAGE:
                self._kept[stage] += 1
                clean = images_of([verdict.image])[0][0]
                painted = attempts.paint((*stage, verdict.image), clean.cpu().numpy())
                self._hits.append((verdict, torch.from_numpy(painted).to(clean.device)))

    def flags(self, clean: Sequence[Verdict], images: Tensor) -> Iterator[Flag]:
        """Ask again, about clean images and kept hits; what changed is fatal to the run."""
        hits = [verdict for verdict, _ in self._hits]
        moved = [_moved(self._oracle, clean, images), 0]
        if hits:
            painted = torch.stack([image for _, image in self._hits])
            moved[1] = _moved(self._oracle, hits, painted)
        searched = [*self._answers, *self._searched()]
        if not any(moved) and not (len(searched) > 1 and varies(searched)):
            return
        said = f"{moved[0]} of {len(clean)} clean and {moved[1]} of {len(hits)} attacked images"
        if not any(moved):
            said = "the images that the search had asked about at the start"
        yield Flag(
            name="stateful-model",
            fatal=True,
            message=f"asked again at the end, the model gives other answers about {said}: its "
            "answers depend on how often it is asked",
        )

    def _searched(self) -> list[Tensor]:
        oracle = self._oracle
        if oracle.compiled or not len(self._images):
            return []
        return [oracle.logits(self._images) for _ in range(oracle.lanes)]


def _moved(oracle: Oracle, verdicts: Sequence[Verdict], images: Tensor) -> int:
    """How many images have another margin than the one written down."""
    logits = checked_finite(oracle.exact(images))
    labels = torch.tensor([verdict.label for verdict in verdicts], device=logits.device)
    then = torch.tensor([verdict.margin for verdict in verdicts], device=logits.device)
    spread = logits.amax(dim=1) - logits.amin(dim=1)
    return int(((margin(logits, labels) - then).abs() > TOLERANCE * spread).sum())
