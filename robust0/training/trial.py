"""A few real steps on copies before a run begins: does it work, and how long will it take?"""

import copy
import time
from dataclasses import replace

import torch

from robust0.errors import EvaluationError, ModelError
from robust0.events import TrainPlanned
from robust0.models.conduct import describe
from robust0.models.fast.oracle import frozen
from robust0.training.job import TrainJob, timetable
from robust0.training.loop import try_steps

ROWS = 16  # images of a trial step, at least: little enough for a large network on a CPU
SHORT = 0.5  # seconds of a trial step that has more; small steps would count an update too often
PASSES = 8  # forwards and backwards of a step, about
STEPS = 4  # the first one only warms up
SECONDS = 2.0  # after which no further step is timed


def rehearse(job: TrainJob, processes: int) -> TrainPlanned:
    """What a run will cost; refuses a network that cannot be trained on these images."""
    times, attacks = timetable(job, processes), [attack for _, attack in job.watch.attacks]
    shape, classes = job.data.image_shape, len(job.data.class_names)
    # Where there is no attack, accuracy is proved by classifying once.
    passes = sum(attack.passes(job.watch.threat, shape, classes) for attack in attacks) or 1
    looks = -(-times.epochs // job.watch.every) + job.fine_tunes
    forward = _seconds_per_forward(job)
    step = _seconds_per_image(job, trial_rows(forward))
    return TrainPlanned(
        title=job.title,
        device=job.device.type,
        images=len(job.rows),
        epochs=times.epochs,
        steps_per_epoch=times.steps,
        batch=times.batch,
        processes=processes,
        training_seconds=step * times.batch * times.total / processes,
        watching_seconds=forward * passes * job.watch.images * looks,
        notes=job.notes,
    )


def trial_rows(forward: float) -> int:
    """Images of a trial step, where a forward of one takes so many seconds."""
    return max(ROWS, int(SHORT / (PASSES * forward)))


def _seconds_per_forward(job: TrainJob) -> float:
    images, network = job.data.images(job.rows[:ROWS]), job.whole()
    with frozen(network), torch.no_grad():
        network(images)
        begun = time.perf_counter()
        network(images).sum().item()
    return (time.perf_counter() - begun) / len(images)


def _seconds_per_image(job: TrainJob, rows: int) -> float:
    """The best of some real steps on a copy: network, method and run directory stay untouched."""
    size = min(rows, job.batch_size, len(job.rows))
    try:
        network, method = copy.deepcopy(job.network), copy.deepcopy(job.method)
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        return 0.0  # cannot be copied: unknown
    trial = replace(
        job, network=network, method=method, rows=job.rows[: size * STEPS], batch_size=size,
        accumulate=1, epochs=job.method.updates, compile=False,
    )  # fmt: skip
    taken: list[float] = []
    try:
        for seconds in try_steps(trial):
            taken.append(seconds)
            if sum(taken) > SECONDS:
                break
    except EvaluationError as fault:
        if not isinstance(fault.__cause__, RuntimeError | ValueError | TypeError):
            raise
        size_of = "x".join(str(side) for side in job.data.image_shape)
        raise ModelError(
            f"the network cannot be trained on {size_of} images: {describe(fault.__cause__)}",
            "check that it takes these images, in batches, and that a gradient can flow through it",
        ) from fault
    return min(taken) / size
