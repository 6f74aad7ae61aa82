"""What certifying costs beside plain classification.

    python benchmarks/certify.py [MODEL] [--images 1000] [--rounds 3] [--stride 5]

Certifying so many images of a voting classifier (all three rules, no attacks, nothing written)
against classifying as many whole images with preact_resnet18_w16, times T / 25, in turn; the median
of the rounds. Each takes one thread, as every call of certify does; certify makes as many calls at
once as there are cores. Seconds are those that the processor worked. Without MODEL: a network with
fresh weights on the views of a stride; weights do not change the time. Target: at most 3.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from robust0.certificates.partition import StridedPartition
from robust0.certifying.classifiers import Sampling, certifier_of
from robust0.models.adapt import adaptation_plan
from robust0.models.build import build
from robust0.models.checkpoint import load_checkpoint
from robust0.models.voting import ViewVoting
from robust0.rng import Stream
from robust0.zoo.fetch import locate

WHOLE = "preact_resnet18_w16"
SIZE = (3, 32, 32)
ROWS = 64
TARGET = 3.0


def main() -> None:
    """Measure and print the ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stride", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    voting = classifier(options.model, options.stride)
    whole = adaptation_plan(WHOLE, image_shape=SIZE, classes=10, pretrained=False)
    plain = build(whole.spec).eval()
    images = Stream.of("benchmark").uniform(*[torch.arange(options.images)] * 2, 3 * 32 * 32)
    images = images.view(-1, *SIZE)
    certifier = certifier_of(voting, SIZE, (1,), Sampling(), "the model")
    views = voting.partition.views
    spent: dict[str, list[float]] = {"certify": [], "classify": []}
    for _ in range(options.rounds):
        spent["certify"].append(
            seconds(lambda part: certifier.prove(part, part[:, 0, 0, 0]), images)
        )
        spent["classify"].append(seconds(plain, images))
    proved, classified = median(spent["certify"]), median(spent["classify"])
    ratio = proved / (classified * views / 25)
    print(f"{views} views, {options.images:,} images, torch {torch.__version__}, "
          f"{torch.backends.cpu.get_cpu_capability()}\n")  # fmt: skip
    print("| | processor seconds | against classifying times T / 25 | target |")
    print("|---|---|---|---|")
    print(f"| classifying with {WHOLE} | {classified:.2f} | | |")
    print(f"| certifying | {proved:.2f} | {ratio:.2f} | at most {TARGET:g} |")


def classifier(model: str | None, stride: int) -> ViewVoting:
    """The voting classifier of a checkpoint, or one with fresh weights."""
    if model is not None:
        network = load_checkpoint(locate(model)).network
        if not isinstance(network, ViewVoting):
            raise SystemExit(f"{model} does not vote over views")
        return network.eval()
    side = -(-SIZE[1] // stride)
    shape = (SIZE[0] + 1, side, side)
    thin = adaptation_plan("preact_resnet18_w8", image_shape=shape, classes=10, pretrained=False)
    partition = StridedPartition(height=SIZE[1], width=SIZE[2], stride=stride)
    return ViewVoting(build(thin.spec), partition, "plurality", 10).eval()


@torch.no_grad()
def seconds(work: Callable[[Tensor], object], images: Tensor) -> float:
    """Processor seconds of some work on all images."""
    begun = time.process_time()
    for part in images.split(ROWS):
        work(part)
    return time.process_time() - begun


if __name__ == "__main__":
    main()
