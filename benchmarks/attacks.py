"""Strength and speed of the attack battery, as ratios within one run.

    python benchmarks/attacks.py MODEL.safetensors [--images 200] [--first 0] [--only saa,order]
        [--rounds 2]

Parts (all at effort quick, 20 pixels, CIFAR-10 test images, nothing else on the machine):

- ``saa``: our cascade against the official structure (benchmarks/official_structure.py) at the same
  budgets: time, survivors; wall time against the bare cost of the model calls it makes. All in
  turn, ``--rounds`` times, and the shortest time of each: other tenants of a machine only add.
- ``command``: the same by ``robust0 audit``, all that a user waits for: starting, checks, the sites
  that hits give back, reports, and with ``--compile`` compiling. The official structure is timed
  with its start too.
- ``rounding``: how far the search's logits are from float32's in what one changed pixel does.
- ``order``: guided-swap first: how long until as many images are broken as by the official one.
- ``single``: every attack alone at equal forward-equivalents.
- ``growth``: cost over images and over budget, peak memory over images.
- ``sigma``: sigma-zero in feature form against adv-lib's (pip install --no-deps 'adv-lib>=0.2.8').
"""

import argparse
import copy
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from official_structure import cascade
from torch import Tensor, nn

from robust0.attacks import (
    SAIF,
    Attack,
    CornerSearch,
    GuidedSwap,
    SigmaZero,
    SparsePGD,
    SparseRS,
)
from robust0.attacks.base import Reply, Rows
from robust0.attacks.calls import Pulse
from robust0.attacks.engine import Outcome, Waiting, search
from robust0.auditing.guards import searching
from robust0.data.datasets import open_dataset
from robust0.device import search_precision, share_cores
from robust0.models.checkpoint import load_checkpoint
from robust0.models.fast.oracle import Oracle, frozen
from robust0.rng import Stream
from robust0.threats import Threat

ROWS = 48  # as an audit of 200 images has
PRECISION = search_precision("auto", torch.device("cpu"))
DEFAULT = torch.bfloat16 if PRECISION == "bf16" else None
THEIR_BATCH = 500  # of the released evaluation
THREAT = Threat.of(20)
SAA: tuple[tuple[str, Attack[Any]], ...] = (
    ("sparse-pgd-p", SparsePGD(steps=100, projected=True)),
    ("sparse-pgd-u", SparsePGD(steps=100, projected=False)),
    ("sparse-rs", SparseRS(queries=1000)),
)


@dataclass
class Source:
    """Which model, and which test images."""

    path: Path
    first: int
    images: int

    def open(self) -> "Bench":
        """Both of them."""
        data = open_dataset("cifar10", "test")
        index = torch.arange(self.first, self.first + self.images)
        lanes, _ = share_cores(torch.device("cpu"))
        network = load_checkpoint(self.path).network
        return Bench(self, network, data.images(index), data.labels[index], lanes)


@dataclass
class Bench:
    """The model and the images it classifies correctly."""

    source: Source
    model: nn.Module
    images: Tensor
    labels: Tensor
    lanes: int

    def oracle(
        self, *, compiled: bool = False, dtype: torch.dtype | None = DEFAULT, rows: int = ROWS
    ) -> Oracle:
        """A fresh door, warmed up."""
        oracle = Oracle(
            self.model, rows, torch.device("cpu"), search_dtype=dtype, compiled=compiled,
            lanes=self.lanes,
        )  # fmt: skip
        oracle.logits(self.images[:rows])
        oracle.gradient(self.images[:rows], lambda logits: logits.logsumexp(dim=1))
        oracle.calls = oracle.gradient_calls = 0
        return oracle

    def fetch(self, positions: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """What the engine asks for."""
        index = torch.tensor(positions)
        return self.images[index], self.labels[index], index

    def standing(self) -> list[int]:
        """Positions that are right when clean."""
        oracle = Oracle(self.model, ROWS, torch.device("cpu"))
        return (oracle.exact(self.images).argmax(dim=1) == self.labels).nonzero()[:, 0].tolist()

    def run(
        self, oracle: Oracle, attacks: Sequence[tuple[str, Attack[Any]]], alive: list[int],
        until: int = -1,
    ) -> list[int]:  # fmt: skip
        """Cascade over survivors; stops early when only ``until`` are left."""
        for name, attack in attacks:
            left = set(alive)
            for event in search(attack, name, oracle, Waiting(alive, self.fetch), THREAT, 0):
                if isinstance(event, Outcome) and event.fooled:
                    left.discard(event.image)
                    if len(left) <= until:
                        return sorted(left)
            alive = sorted(left)
        return alive


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first test image")
    parser.add_argument("--only", default="saa,command,rounding,order,single,growth,sigma")
    parser.add_argument("--rounds", type=int, default=2, help="of the parts saa, order and command")
    parser.add_argument("--budgets", default="400,1000", help="of the part single")
    options = parser.parse_args()
    parts = options.only.split(",")
    bench = Source(options.model, options.first, options.images).open()
    _, threads = share_cores(torch.device("cpu"))
    print(
        f"{options.model.name}, {options.images} CIFAR-10 test images from {options.first}, "
        f"{THREAT}, {ROWS} rows, "
        f"{bench.lanes} calls at once, {threads} threads each, torch {torch.__version__}"
    )
    if "saa" in parts or "order" in parts:
        ensembles(bench, threads, options.rounds, all_modes="saa" in parts)
    if "command" in parts:
        commands(Source(options.model, 0, options.images), options.rounds)  # audits start there
    bench.model.to(memory_format=torch.channels_last)
    with searching(bench.model, threads):
        if "rounding" in parts:
            rounding(bench)
        if "single" in parts:
            singles(bench, [int(number) for number in options.budgets.split(",")])
        if "growth" in parts:
            growth(bench)
    if "sigma" in parts:
        sigma(bench)


def ensembles(bench: Bench, threads: int, rounds: int, *, all_modes: bool) -> None:
    """Our sAA and our order against the official structure, the shortest of some rounds."""
    modes: dict[str, dict[str, Any]] = {f"robust0 saa ({PRECISION})": {}}
    if all_modes:
        modes["robust0 saa, --compile"] = {"compiled": True}
        if DEFAULT is not None:
            modes["robust0 saa, --precision fp32"] = {"dtype": None}
    # In a process of its own, where nothing that an audit sets helps it or is in its way.
    apart = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    rows: list[list[Timing]] = []
    with apart, searching(bench.model, threads):
        bench.model.to(memory_format=torch.channels_last)  # as audit does
        oracles = [bench.oracle(**mode) for mode in modes.values()]
        for _ in range(rounds):
            first = apart.submit(official, bench.source).result()
            ours = [timed(partial(stages, bench, each), each, bench.images) for each in oracles]
            last = timed(partial(guided_first, bench, oracles[0], first.left[-1]))
            rows.append([first, *ours, last])
    print("\n| cascade at 100 + 100 + 1,000 | survivors | seconds | speed-up | wall / bare |")
    print("|---|---|---|---|---|")
    names = ["official structure", *modes, "guided-swap first, until it equals the first row"]
    columns = list(zip(*rows, strict=True))
    baseline = min(each.seconds for each in columns[0])
    for name, column in zip(names, columns, strict=True):
        best = min(column, key=lambda each: each.seconds)
        found = sorted({", ".join(map(str, each.left)) for each in column})
        over = f"{best.seconds / best.bare:.2f}" if best.bare else ""
        print(
            f"| {name} | {' or '.join(found)} of {len(bench.images)} "
            f"| {best.seconds:.0f} (at most {max(each.seconds for each in column):.0f}) "
            f"| {baseline / best.seconds:.2f} | {over} |"
        )


@dataclass
class Timing:
    """Survivors after each stage, wall time, and that of the model calls alone if known."""

    left: list[int]
    seconds: float
    bare: float


def timed(
    run: Callable[[], list[int]], oracle: Oracle | None = None, images: Tensor | None = None
) -> Timing:
    """One run of an ensemble, with the bare cost of an oracle's calls."""
    if oracle is not None:
        oracle.calls = oracle.gradient_calls = 0
    begun = time.perf_counter()
    left = run()
    seconds = time.perf_counter() - begun
    bare = 0.0 if oracle is None or images is None else bare_cost(oracle, images)
    return Timing(left, seconds, bare)


def official(source: Source) -> Timing:
    """The cascade of the official structure."""
    bench = source.open()
    bench.model.eval()
    found = partial(cascade, bench.model, bench.images, bench.labels, 20, 100, 1000, THEIR_BATCH)
    return timed(lambda: [int(found().sum())])


def commands(source: Source, rounds: int) -> None:
    """What users wait for, the shortest of some rounds; compiled code is made anew each time."""
    rows: dict[str, list[float]] = {}
    for _ in range(rounds):
        begun = time.perf_counter()
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:
            apart.submit(official, source).result()
        rows.setdefault("official structure", []).append(time.perf_counter() - begun)
        for flags in ([], ["--compile"]):
            with tempfile.TemporaryDirectory() as folder:
                begun = time.perf_counter()
                subprocess.run(  # noqa: S603 - ourselves
                    [
                        sys.executable, "-m", "robust0", "audit", str(source.path), "--eps", "20",
                        "--attacks", "saa", "--mode", "cascade", "--effort", "quick",
                        "--images", str(source.images), "--out", f"{folder}/run", *flags,
                    ],
                    env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/compiled"},
                    capture_output=True, check=True,
                )  # fmt: skip
            name = " ".join(["robust0 audit", *flags])
            rows.setdefault(name, []).append(time.perf_counter() - begun)
    print("\n| as a command | seconds | speed-up |\n|---|---|---|")
    baseline = min(rows["official structure"])
    for name, seconds in rows.items():
        print(f"| {name} | {min(seconds):.0f} | {baseline / min(seconds):.2f} |")


def stages(bench: Bench, oracle: Oracle) -> list[int]:
    """Our cascade, stage by stage."""
    alive, left = bench.standing(), []
    for stage in SAA:
        alive = bench.run(oracle, (stage,), alive)
        left.append(len(alive))
    return left


def guided_first(bench: Bench, oracle: Oracle, target: int) -> list[int]:
    """guided-swap, then our cascade, until no more images are left than ``target``."""
    order = (("guided-swap", GuidedSwap(forwards=1200)), *SAA)
    return [len(bench.run(oracle, order, bench.standing(), until=target))]


def bare_cost(oracle: Oracle, images: Tensor) -> float:
    """Seconds of the model calls alone: as many forwards and gradients as the search made."""
    forwards, gradients = oracle.calls - oracle.gradient_calls, oracle.gradient_calls
    tries = 12 * oracle.lanes

    def forward(_: int) -> None:
        oracle.logits(images[:ROWS])

    def gradient(_: int) -> None:
        oracle.gradient(images[:ROWS], lambda logits: logits.logsumexp(dim=1))

    with ThreadPoolExecutor(oracle.lanes) as threads:
        begun = time.perf_counter()
        list(threads.map(forward, range(tries)))
        middle = time.perf_counter()
        list(threads.map(gradient, range(tries)))
        end = time.perf_counter()
    return (middle - begun) / tries * forwards + (end - middle) / tries * gradients


def rounding(bench: Bench) -> None:
    """Root mean squares: what one more changed pixel does to the logits, and the error in it."""
    generator = torch.Generator().manual_seed(0)

    def painted(images: Tensor, count: int) -> Tensor:
        flat = images.flatten(2).clone()
        for image in flat:
            sites = torch.randperm(image.shape[1], generator=generator)[:count]
            image[:, sites] = torch.randint(0, 2, (len(image), count), generator=generator).float()
        return flat.view_as(images)

    before = painted(bench.images[:ROWS], THREAT.budget)
    after = [painted(before, 1) for _ in range(8)]

    def effect(ask: Callable[[Tensor], Tensor]) -> Tensor:
        moved = torch.stack([ask(images) - ask(before) for images in after])
        return moved - moved.mean(dim=2, keepdim=True)

    exact = effect(bench.oracle().exact)
    print("\n| what one pixel does to the logits | rms | rms of its error |\n|---|---|---|")
    for name, compiled in (("eager", False), ("--compile", True)):
        oracle = bench.oracle(compiled=compiled, dtype=torch.bfloat16)
        asked: dict[str, Callable[[Tensor], Tensor]] = {
            "forward": oracle.logits,
            "gradient": lambda images, by=oracle: by.gradient(images, lambda z: z.sum(dim=1))[0],
        }
        for kind, ask in asked.items():
            error = (effect(ask) - exact).square().mean().sqrt()
            print(
                f"| bf16, {name}, {kind} call | {exact.square().mean().sqrt():.5f} | {error:.5f} |"
            )


def singles(bench: Bench, budgets: Sequence[int]) -> None:
    """Each attack alone, at equal forward-equivalents."""
    total, alive = len(bench.images), bench.standing()
    print(f"\n{len(alive)} of {total} images are right when clean.\n")
    print("| attack alone | forward-equivalents | survivors |\n|---|---|---|")
    for budget in budgets:
        half = budget // 2
        rows: tuple[tuple[str, Attack[Any]], ...] = (
            ("guided-swap", GuidedSwap(forwards=budget)),
            ("sparse-rs", SparseRS(queries=budget)),
            ("sparse-pgd-p", SparsePGD(steps=half, projected=True)),
            ("sparse-pgd-u", SparsePGD(steps=half, projected=False)),
            ("corner-search", CornerSearch(forwards=budget)),
            ("saif", SAIF(steps=half)),
            ("sigma-zero", SigmaZero(steps=half)),
        )
        for name, attack in rows:
            left = len(bench.run(bench.oracle(), ((name, attack),), alive))
            print(f"| {name} | {budget} | {left} |", flush=True)


def growth(bench: Bench) -> None:
    """Model calls and memory over the number of images, calls over the budget."""
    alive = bench.standing()
    print("\n| sparse-rs | images | calls x rows / (images x queries) | peak memory MiB |")
    print("|---|---|---|---|")
    for images in (len(alive) // 4, len(alive) // 2, len(alive)):
        for queries in (50, 100):
            oracle = bench.oracle()
            waiting = Waiting(alive[:images], bench.fetch)
            attack = SparseRS(queries=queries)
            events = list(search(attack, "sparse-rs", oracle, waiting, Threat.of(1), 0))
            used = sum(e.forwards for e in events if isinstance(e, Outcome))
            calls = sum(isinstance(e, Pulse) for e in events)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"| {queries} queries | {images} | {calls * ROWS / used:.2f} | {peak:.0f} |")


def sigma(bench: Bench, steps: int = 100) -> None:
    """Median number of changed features: ours driven without retiring rows, against adv-lib's."""
    # adv-lib imports visdom, a plotting client that current build tools cannot install and that no
    # attack uses.
    sys.modules.setdefault("visdom", ModuleType("visdom"))
    try:
        from adv_lib.attacks import sigma_zero
    except ImportError as problem:
        print(f"\nsigma-zero: {problem}; pip install --no-deps 'adv-lib>=0.2.8'")
        return
    attack, theirs, ours = SigmaZero(steps=steps), [], []
    seconds_theirs = seconds_ours = 0.0
    plain = copy.deepcopy(bench.model).to(memory_format=torch.contiguous_format)  # as loaded
    with frozen(bench.model), frozen(plain):
        alive = torch.tensor(bench.standing())
        batches = alive.chunk(max(1, len(alive) // ROWS))  # of one length, so that none is padded
        oracle = bench.oracle(dtype=None, rows=len(batches[0]))
        for index in batches:
            images, labels = bench.images[index], bench.labels[index]
            begun = time.perf_counter()
            found = sigma_zero(plain, images, labels, num_steps=steps)
            middle = time.perf_counter()
            ours.append(fewest_features(attack, oracle, images, labels))
            seconds_theirs += middle - begun
            seconds_ours += time.perf_counter() - middle
            changed = (found != images).flatten(1).sum(dim=1)
            theirs.append(torch.where(changed == 0, images[0].numel(), changed))
    their, our = torch.cat(theirs), torch.cat(ours)
    ratio = (our / their).log()
    print(f"\n| sigma-zero, features, {steps} steps, {len(our)} images | median l0 | seconds |")
    print("|---|---|---|")
    print(f"| adv-lib | {their.median().item()} | {seconds_theirs:.1f} |")
    print(f"| robust0 | {our.median().item()} | {seconds_ours:.1f} |")
    print(
        f"\nGeometric mean of the ratio, image by image: {ratio.mean().exp():.3f} "
        f"(standard error {ratio.std() / len(ratio) ** 0.5:.3f})."
    )


def fewest_features(attack: SigmaZero, oracle: Oracle, images: Tensor, labels: Tensor) -> Tensor:
    """(B,) the fewest changed features of a misclassified iterate; no row retires early."""
    threat = Threat.of(1, "feature")
    ids = torch.arange(len(images))
    state = attack.start(Rows(images, labels, ids, threat, Stream.of("bench"), 10))
    done = False
    while not done:
        asked = attack.ask(state)
        if bool(attack.wants_gradient(state).any()):
            logits, slope = oracle.gradient(asked, lambda z: attack.objective(state, z))
            reply = Reply(logits, threat.view(slope))
        else:
            reply = Reply(oracle.logits(asked))
        done = bool(attack.tell(state, reply).all())
    return state.fewest.clamp(max=images[0].numel())


if __name__ == "__main__":
    main()
