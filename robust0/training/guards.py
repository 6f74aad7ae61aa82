"""What stops a run before it destroys its last good snapshot, with words that help."""

import math
import statistics
from collections.abc import Callable

from torch import Tensor, nn

from robust0.errors import TrainingError
from robust0.events import StepDone
from robust0.models.fast.memory import out_of_memory

_CALM_DOWN = "lower the learning rate or set training.clip_norm in a new run"
EXPLODED = 1e4  # times the usual gradient norm
_REPORTS = 20  # reports that say what is usual


def gradient_norm(network: nn.Module, clip: float | None) -> Tensor:
    """The norm of all gradients, which are scaled down to ``clip`` if that is given."""
    limit = math.inf if clip is None else clip
    return nn.utils.clip_grad_norm_(network.parameters(), limit, error_if_nonfinite=False)


class HealthCheck:
    """Refuses to go on from a loss or gradient that has left the run's own scale.

    A fixed limit would not do: a fresh ConvNeXt has gradient norms of 1e7 on images with black
    borders, where its first layer norm divides by nearly nothing, and trains well all the same.
    """

    def __init__(self) -> None:
        self._norms: list[float] = []

    def look(self, report: StepDone) -> None:
        """Compare a report with the last ones."""
        if not math.isfinite(report.loss):
            raise TrainingError(
                f"the loss became {report.loss} near step {report.step}", _CALM_DOWN
            )
        usual = statistics.median(self._norms) if len(self._norms) >= _REPORTS // 4 else math.inf
        if not report.gradient_norm < EXPLODED * usual:
            raise TrainingError(
                f"the gradient norm exploded to {report.gradient_norm:.3g} near step "
                f"{report.step}; {usual:.3g} was usual",
                _CALM_DOWN,
            )
        self._norms = [*self._norms, report.gradient_norm][-_REPORTS:]


def batch_that_fits(batch_size: int, attempt: Callable[[int], None]) -> TrainingError:
    """After running out of memory: try halves, and say which batch size works."""
    size = batch_size // 2
    while size >= 1:
        try:
            attempt(size)
        except (RuntimeError, MemoryError) as problem:
            if not out_of_memory(problem):
                raise
            size //= 2
            continue
        accumulate = math.ceil(batch_size / size)
        return TrainingError(
            f"out of memory at a batch size of {batch_size}; {size} fits",
            f"use --batch-size {size} --set training.accumulate={accumulate}, or another device",
        )
    return TrainingError(
        f"out of memory at a batch size of {batch_size}, and a single image does not fit either",
        "use a smaller model, another device or training.precision=bf16",
    )
