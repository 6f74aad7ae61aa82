"""What a training step costs, as ratios within one run.

    python benchmarks/harden_step.py [--model preact_resnet18_w16] [--batch-size 128] [--rounds 7]

Rows are measured in turn, several rounds; the table gives medians and ratios. ``bare`` is the least
a Fast-LS-l0 (T) step can cost: an eval-mode forward with an input gradient, two train-mode forwards
and two full backwards. ``official structure`` is a step laid out as the released sPGD trainer's is
(three forwards and two backwards with parameter gradients inside the attack, full sorts, contiguous
layout), written here from its description. Run it with nothing else on the machine.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

import robust0.models  # noqa: F401 - registers our networks
from robust0.commands.build_training import compose, threat_of
from robust0.models.adapt import adaptation_plan
from robust0.models.build import build
from robust0.models.fast.oracle import frozen
from robust0.recipes.load import load_recipe
from robust0.training.methods.base import Loss, Method, MicroBatch, Moment, StepBatch
from robust0.training.methods.inner import SparsePGDInner


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="preact_resnet18_w16")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--growth-steps", type=int, default=60)
    options = parser.parse_args()
    recipe = load_recipe("cifar10").recipe
    threat = threat_of(recipe.training.threat)
    count = options.batch_size
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(count, 3, 32, 32, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    spec = adaptation_plan(options.model, image_shape=(3, 32, 32), classes=10).spec
    method = compose(recipe.training, threat, labels, 10)

    def step_of(chosen: Method) -> Callable[[], None]:
        network = build(spec).to(memory_format=torch.channels_last).train()
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
        last = images.contiguous(memory_format=torch.channels_last)
        places = torch.arange(count)
        micro = MicroBatch(last, labels, places, places, places)
        state = {"step": 0}

        def step() -> None:
            moment = Moment(0, 60, state["step"], 0.6)
            state["step"] += 1
            chosen.train(StepBatch(network, network, (micro,), count, moment), update)

        def update(loss: Loss) -> None:
            loss(micro).loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), float("inf"))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    many = replace(method, inner=SparsePGDInner(steps=20, select="best"))
    rows: dict[str, Callable[[], None]] = {
        "bare passes": bare_passes(build(spec), images, labels),
        "fast-ls-l0 step": step_of(method),
        "official structure": official_structure(build(spec), images, labels, threat.budget),
        "20-step": step_of(many),
    }
    times: dict[str, list[float]] = {name: [] for name in rows}
    for action in rows.values():
        action()
    for _ in range(options.rounds):
        for name, action in rows.items():
            begun = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - begun)
    medians = {name: statistics.median(values) for name, values in times.items()}
    threads = torch.get_num_threads()
    print(f"{options.model}, batch {count}, {threads} threads, torch {torch.__version__}")
    print("\n| step | seconds | against bare | against fast-ls-l0 |\n|---|---|---|---|")
    for name, seconds in medians.items():
        print(
            f"| {name} | {seconds:.3f} | {seconds / medians['bare passes']:.2f} "
            f"| {seconds / medians['fast-ls-l0 step']:.2f} |"
        )
    growth(step_of(method), options.growth_steps)


def growth(step: Callable[[], None], steps: int) -> None:
    """Time and memory of the first and the last third of many steps."""
    step()
    durations: list[float] = []
    memory: list[int] = []
    for _ in range(steps):
        begun = time.perf_counter()
        step()
        durations.append(time.perf_counter() - begun)
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    third = steps // 3
    first, last = statistics.median(durations[:third]), statistics.median(durations[-third:])
    print(
        f"\nover {steps} steps: time of the last third {last / first:.3f} of the first, "
        f"peak memory grew by {(memory[-1] - memory[third]) / 1024:.1f} MiB after the first third"
    )


def bare_passes(network: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """Three forwards, one input backward, two full backwards."""
    network = network.to(memory_format=torch.channels_last).train()
    images = images.contiguous(memory_format=torch.channels_last)

    def passes() -> None:
        with frozen(network):
            probe = images.detach().requires_grad_()
            torch.autograd.grad(functional.cross_entropy(network(probe), labels), probe)
        first, second = network(images), network(images)
        functional.cross_entropy(first + second, labels).backward()
        network.zero_grad(set_to_none=True)

    return passes


def official_structure(
    network: nn.Module, images: Tensor, labels: Tensor, budget: int
) -> Callable[[], None]:
    """A TRADES step around a one-step attack laid out as the release of [Zhong24] is."""
    network = network.train()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    generator = torch.Generator().manual_seed(1)

    def project(mask: Tensor) -> Tensor:
        flat = mask.flatten(1)
        order = flat.argsort(dim=1, descending=True)
        return torch.zeros_like(flat).scatter_(1, order[:, :budget], 1.0).view_as(mask)

    def evaluate(delta: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        moved = (images + delta * project(mask)).detach().requires_grad_()
        functional.cross_entropy(network(moved), labels, reduction="sum").backward()
        slope = moved.grad if moved.grad is not None else torch.zeros_like(moved)
        return moved.detach(), slope

    def step() -> None:
        network.eval()
        network(images)  # clean predictions
        delta = torch.rand(images.shape, generator=generator) * 2 - 1
        delta = torch.clamp(delta, -images, 1 - images)
        mask = torch.randn(len(images), 1, *images.shape[2:], generator=generator)
        _, slope = evaluate(delta, mask)
        weight = mask.sigmoid()
        mask_slope = (slope * delta).sum(1, keepdim=True) * weight * (1 - weight)
        norm = mask_slope.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        old, mask = project(mask), mask + 8 * mask_slope / (norm + 1e-10)
        delta = torch.clamp(delta + 0.25 * slope.sign(), -images, 1 - images)
        moved, _ = evaluate(delta, mask)
        (project(mask) == old).flatten(1).all(dim=1)
        network.train()
        network.zero_grad(set_to_none=True)
        clean, attacked = network(images), network(moved)
        divergence = functional.kl_div(
            attacked.log_softmax(1), clean.softmax(1), reduction="batchmean"
        )
        (functional.cross_entropy(clean, labels) + 6 * divergence).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main()
