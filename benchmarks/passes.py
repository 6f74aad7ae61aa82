"""What the model calls of sAA cost, without the attacks around them: ours and the official layout.

    python benchmarks/passes.py [NETWORK ...] [--rounds 5] [--no-compile]

Networks with fresh weights on 32x32 images, any of timm's. The official layout is a contiguous
network in one call of all images with parameter gradients in every backward; it runs in a process
of its own, where nothing that an audit sets helps it. Ours is what an audit asks: calls of 48 rows,
one thread each, as many at once as there are cores. All in turn, the median of the rounds; seconds
are those that the processor worked for the process, because other tenants of a machine take away
the rest. With ATEN_CPU_CAPABILITY=avx2 and ONEDNN_MAX_CPU_ISA=AVX2 an older machine is imitated.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional

from robust0.auditing.guards import searching
from robust0.device import search_precision, share_cores
from robust0.models.adapt import adaptation_plan
from robust0.models.build import build
from robust0.models.fast.oracle import Oracle

NETWORKS = (
    "preact_resnet18_w16", "preact_resnet18", "resnet18_small", "resnet18", "convnext_tiny",
    "vit_tiny_patch16_224",
)  # fmt: skip
THEIR_ROWS, OUR_ROWS = 144, 48
# What sAA at effort quick makes of each kind per image that it does not break, about.
FORWARDS, GRADIENTS = 1000, 200
SECONDS = 1.0  # of measurement for each number
CPU = torch.device("cpu")
Cost = tuple[float, float]  # processor seconds per image: a forward, and one with its backward


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    lanes, threads = share_cores(CPU)
    precision = search_precision("auto", CPU)
    print(
        f"{lanes} calls of {OUR_ROWS} rows at once, {threads} threads each, {precision}, torch "
        f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}\n"
    )
    print("| network | mode | forwards/s | gradients/s | sAA's calls, times as fast |")
    print("|---|---|---|---|---|", flush=True)
    apart = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    with apart:
        for name in options.networks:
            rows = compared(name, apart, options.rounds, compiles=options.compile)
            for mode, (forward, gradient, ratio) in rows.items():
                print(
                    f"| {name} | {mode} | {lanes * threads / forward:.0f} "
                    f"| {lanes * threads / gradient:.0f} | {ratio:.2f} |",
                    flush=True,
                )


def compared(
    name: str, apart: ProcessPoolExecutor, rounds: int, *, compiles: bool
) -> dict[str, tuple[float, float, float]]:
    """Costs of each mode, and how many times as fast as the official layout sAA's calls are."""
    lanes, threads = share_cores(CPU)
    dtype = torch.bfloat16 if search_precision("auto", CPU) == "bf16" else None
    model = network(name).to(memory_format=torch.channels_last)
    images = torch.rand(OUR_ROWS, 3, 32, 32)
    found: dict[str, list[Cost]] = {"official layout": []}
    with ExitStack() as stack:
        stack.enter_context(searching(model, threads))
        pool = stack.enter_context(ThreadPoolExecutor(lanes))
        oracles = {}
        for mode, compiled in (("robust0", False), ("robust0, --compile", True)):
            if compiled <= compiles:
                oracles[mode] = Oracle(model, OUR_ROWS, CPU, dtype, compiled=compiled, lanes=lanes)
                found[mode] = []
                ours(oracles[mode], images, pool, 0.0)  # compiles, allocates, chooses kernels
        for _ in range(rounds):
            found["official layout"].append(apart.submit(official, name).result())
            for mode, oracle in oracles.items():
                found[mode].append(ours(oracle, images, pool, SECONDS))
    cost = {
        mode: (median(f for f, _ in all_), median(g for _, g in all_))
        for mode, all_ in found.items()
    }
    total = {mode: FORWARDS * f + GRADIENTS * g for mode, (f, g) in cost.items()}
    return {mode: (*cost[mode], total["official layout"] / total[mode]) for mode in cost}


def ours(oracle: Oracle, images: Tensor, pool: ThreadPoolExecutor, seconds: float) -> Cost:
    """Of our calls, as many at once as there are lanes."""

    def forward(_: int) -> None:
        oracle.logits(images)

    def gradient(_: int) -> None:
        oracle.gradient(images, lambda logits: logits.logsumexp(dim=1))

    def several(call: Callable[[int], None]) -> Callable[[], int]:
        return lambda: len(images) * len(list(pool.map(call, range(2 * oracle.lanes))))

    return spent(several(forward), seconds), spent(several(gradient), seconds)


def official(name: str) -> Cost:
    """Of the official layout's calls, in the process that this runs in."""
    model = theirs(name)
    images, labels = torch.rand(THEIR_ROWS, 3, 32, 32), torch.zeros(THEIR_ROWS, dtype=torch.long)

    def forward() -> int:
        with torch.no_grad():
            model(images)
        return THEIR_ROWS

    def gradient() -> int:
        moved = images.clone().requires_grad_()
        functional.cross_entropy(model(moved), labels, reduction="sum").backward()
        return THEIR_ROWS

    spent(forward, 0.0)
    spent(gradient, 0.0)
    return spent(forward, SECONDS), spent(gradient, SECONDS)


@cache
def theirs(name: str) -> nn.Module:
    """The network as the process of the official layout keeps it."""
    return network(name)


def network(name: str) -> nn.Module:
    """A network for ten classes of small images, in eval mode."""
    return build(adaptation_plan(name, image_shape=(3, 32, 32), classes=10).spec).eval()


def spent(call: Callable[[], int], seconds: float) -> float:
    """Processor seconds per image, over at least so many and one call."""
    begun, images = time.process_time(), 0
    while True:
        images += call()
        used = time.process_time() - begun
        if used >= seconds * torch.get_num_threads():
            return used / images


if __name__ == "__main__":
    main()
