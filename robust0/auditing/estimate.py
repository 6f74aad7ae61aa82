"""What an audit may cost, from one second with the model; nothing is written."""

import time
from collections.abc import Callable

import torch

from robust0.auditing.guards import searching
from robust0.auditing.job import AuditJob
from robust0.distributed import World
from robust0.events import AttackCost, AuditPlanned
from robust0.losses import margin
from robust0.models.fast.oracle import Oracle
from robust0.records import configured

SECONDS = 1.0  # of measurement, half for each kind of call


def cost_plan(job: AuditJob, world: World) -> AuditPlanned:
    """What will run and, measured on this machine, what it costs at most."""
    with searching(job.network, job.threads):
        forward, gradient = measure(job, job.oracle, SECONDS)
    images_at_once = job.facts.settings.batch_size * job.oracle.lanes * world.size
    black_box = {attack.name: attack.black_box for attack in job.facts.attacks}
    costs = []
    most = job.passes
    for budget, name in job.plan.costliest():
        passes = most[budget, name]
        # A gradient call is two passes, a forward and a backward.
        seconds = passes * (forward if black_box[configured(name)] else gradient / 2)
        costs.append(AttackCost(name, budget, passes, seconds * len(job.data) / images_at_once))
    return AuditPlanned(
        title=job.title,
        about=job.about,
        notes=job.notes,
        warnings=job.warnings,
        costs=tuple(costs),
        seconds=sum(cost.seconds for cost in costs),
        forwards_per_second=images_at_once / forward,
        gradients_per_second=images_at_once / gradient,
        processes=world.size,
    )


def measure(job: AuditJob, oracle: Oracle, seconds: float) -> tuple[float, float]:
    """Seconds of one call of the search: a forward, and a forward with its backward."""
    index = torch.arange(min(oracle.batch_size, len(job.data)))
    images, labels = job.data.images(index), job.data.labels[index.to(job.data.device)]

    def gradient() -> None:
        oracle.gradient(images, lambda logits: margin(logits, labels))

    def forward() -> None:
        oracle.logits(images)

    return _timed(forward, job.device, seconds / 2), _timed(gradient, job.device, seconds / 2)


def _timed(call: Callable[[], None], device: torch.device, seconds: float) -> float:
    call()  # the first one compiles, allocates and chooses kernels
    _settle(device)
    begun, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - begun < seconds:
        call()
        calls += 1
        _settle(device)
    return (time.perf_counter() - begun) / calls


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
