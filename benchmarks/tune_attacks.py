"""Which form of an attack is strongest at equal passes, on CIFAR-10 training images only.

    python benchmarks/tune_attacks.py sparse-pgd MODEL.safetensors ... [--images 64] [--first 0]

Every form runs once to the largest number of passes; what fell earlier counts at the smaller ones:
these attacks do the same however long they are to run. A gradient counts as two passes. Images are
those of the smallest clean margin among four times as many. The tables are in README.md.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robust0.attacks import SAIF, Attack, SparsePGD
from robust0.attacks.engine import Outcome, Waiting, search
from robust0.data.datasets import open_dataset
from robust0.device import search_precision
from robust0.losses import margin
from robust0.models.checkpoint import load_checkpoint
from robust0.models.fast.oracle import Oracle, frozen
from robust0.threats import Threat

ROWS = 32
CPU = torch.device("cpu")


def main() -> None:
    """Print one table per model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("attack", choices=["sparse-pgd", "saif"])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--first", type=int, default=0, help="training image to begin with")
    parser.add_argument("--pixels", type=int, default=20)
    parser.add_argument("--passes", type=int, nargs="+", default=[200, 600])
    parser.add_argument("--only", nargs="*", help="names of forms")
    options = parser.parse_args()
    threat = Threat.of(options.pixels)
    passes = sorted(options.passes)
    for path in options.models:
        model = load_checkpoint(path).network.to(memory_format=torch.channels_last)
        images, labels = right_images(model, options.first, options.images)
        precision = search_precision("auto", CPU)
        dtype = torch.bfloat16 if precision == "bf16" else None
        oracle = Oracle(model, ROWS, CPU, search_dtype=dtype)
        print(f"{path.stem}: {len(images)} images from {options.first}, {threat}")
        heads = "  ".join(f"at {count}" for count in passes)
        print(f"{'form':36s} standing {heads}, margin left", flush=True)
        for name, attack in forms(options.attack, passes[-1]):
            if options.only and name not in options.only:
                continue
            found = attacked(attack, oracle, images, labels, threat)
            standing = [sum(used(o) > count for o in found) for count in passes]
            left = sum(max(outcome.margin, 0.0) for outcome in found) / len(found)
            print(f"{name:36s} {'  '.join(map(str, standing))}  {left:.4f}", flush=True)


def forms(attack: str, passes: int) -> Iterator[tuple[str, Attack[Any]]]:
    """Names and attacks to compare."""
    steps = passes // 2
    if attack == "sparse-pgd":
        for projected, name in ((True, "p"), (False, "u")):
            for loss in ("ce", "margin", "adaptive"):
                for reinit in ("consecutive", "cumulative"):
                    yield (
                        f"{name} {loss} {reinit}",
                        SparsePGD(steps=steps, projected=projected, loss=loss, reinit=reinit),
                    )
            for compat in ("icml2024", "tpami2025"):
                yield f"{name} {compat}", SparsePGD(steps=steps, projected=projected, compat=compat)
    else:
        yield "own", SAIF(steps=steps)
        yield "own, random origin", SAIF(steps=steps, origin="random")
        yield "imtiaz2022", SAIF(steps=steps, compat="imtiaz2022")
        yield "binarised", SAIF(steps=steps, compat="binarised")


def right_images(model: nn.Module, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Of the training images from ``first`` on, those that are right with the smallest margin.

    A quarter as many as are looked at: the others stand whatever form of an attack is tried.
    """
    dataset = open_dataset("cifar10", "train")
    index = torch.arange(first, min(len(dataset), first + 4 * count))
    images, labels = dataset.images(index), dataset.labels[index]
    with frozen(model):
        gap = margin(Oracle(model, 64, CPU).exact(images), labels)
    order = gap.where(gap > 0, torch.inf).argsort()[:count]
    order = order[gap[order] > 0].sort().values
    return images[order], labels[order]


def attacked(
    attack: Attack[Any], oracle: Oracle, images: Tensor, labels: Tensor, threat: Threat
) -> list[Outcome]:
    """What an attack does to all images."""

    def fetch(positions: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        index = torch.tensor(positions)
        return images[index], labels[index], index

    with frozen(oracle.model):
        events = search(attack, "tune", oracle, Waiting(range(len(images)), fetch), threat, 0)
        found = [event for event in events if isinstance(event, Outcome)]
    if any(outcome.violation for outcome in found):
        raise RuntimeError(f"{attack} left its budget")
    return found


def used(outcome: Outcome) -> float:
    """The passes that a hit took; infinite for what stands."""
    # The last forward of a gradient attack is one too many: N steps cost 2N + 1.
    return outcome.forwards + outcome.backwards - 1 if outcome.fooled else torch.inf


if __name__ == "__main__":
    main()
