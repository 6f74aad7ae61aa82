"""Is this evaluation believable? Checks of the model before the first attack.

All of them are fatal under ``--strict``: each means that attacks cannot do their work, or that
their answers cannot be repeated. They look at some of the images and draw nothing at random
that does not follow from the seed, so that equal runs raise equal flags.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from robust0.attacks.base import Rows
from robust0.attacks.engine import Outcome, Waiting, search
from robust0.attacks.sparse_pgd import SparsePGD
from robust0.losses import cross_entropy, margin
from robust0.models.fast.oracle import Oracle
from robust0.records import Flag
from robust0.rng import Stream
from robust0.threats import Threat

REPEATS = 5
TOLERANCE = 1e-4  # l2 distance between normalised logits
CONTROL_IMAGES = 32
CONTROL_STEPS = 100
CONTROL_SHARE = 0.05  # that may survive an unlimited budget

Fetch = Callable[[Sequence[int]], tuple[Tensor, Tensor, Tensor]]


def check_behaviour(
    oracle: Oracle, fetch: Fetch, first: Sequence[int], correct: Sequence[int], threat: Threat,
    seed: int,
) -> Iterator[Flag]:  # fmt: skip
    """Flags of a model.

    Args:
        oracle: the model.
        fetch: images, labels and ids by position.
        first: positions of images of the run.
        correct: positions of correctly classified ones.
        threat: the largest budget of the run.
        seed: of the random starts.
    """
    images, labels, _ = fetch(first[: oracle.batch_size])
    with _autograd_calls() as calls:
        logits = oracle.exact(images)
    calls += _calls_under_gradients(oracle, images, labels)
    answers = [logits, *(oracle.exact(images) for _ in range(REPEATS - 1))]
    half = max(1, len(images) // 2)
    company = torch.cat([images[:half], 1 - images[:half]])
    right = {int((answer.argmax(dim=1) == labels).sum()) for answer in answers}
    if len(right) > 1 or varies(answers):
        yield _fatal(
            "randomised-model",
            f"{REPEATS} forwards of the same images give different answers: a verdict is the "
            "outcome of chance",
        )
    elif varies([logits[:half], oracle.exact(company)[:half]]):
        yield _fatal(
            "batch-dependent-model",
            "an image's answer depends on the other images of the call: batch statistics in use",
        )
    if _probabilities(logits):
        yield _fatal(
            "probabilities",
            "the outputs are probabilities, not logits: their gradients vanish for confident "
            "answers; return the logits",
        )
    if calls:
        yield _fatal(
            "dynamic-defence",
            "the model calls autograd inside its forward: an optimisation at inference that these "
            "attacks do not see through",
        )
    if correct:
        yield from _attacked(oracle, fetch, correct[:CONTROL_IMAGES], threat, seed)


def _attacked(
    oracle: Oracle, fetch: Fetch, positions: Sequence[int], threat: Threat, seed: int
) -> Iterator[Flag]:
    """Checks that need gradients: at random starts, and with every site allowed to change."""
    counts = {
        name: _bad_gradients(oracle, fetch, positions, threat, seed, loss)
        for name, loss in (("cross entropy", cross_entropy), ("margin", margin))
    }
    total = len(positions)
    infinite = max(infinite for _, infinite in counts.values())
    if infinite:
        yield Flag(
            name="non-finite-gradients",
            fatal=False,
            message=f"the input gradient has infinite or NaN entries for {infinite} of {total} "
            "images; they count as zero, and gradient attacks may miss what they hide",
        )
    if any(zeros for zeros, _ in counts.values()):
        shares = " and ".join(f"{zeros} of {total} ({name})" for name, (zeros, _) in counts.items())
        yield _fatal(
            "zero-gradients",
            f"no input gradient at all at the random start: {shares}; gradient attacks are blind "
            "there",
        )
    standing = _unbounded(oracle, fetch, positions, threat, seed)
    if standing > CONTROL_SHARE * total:
        yield _fatal(
            "unbounded-control",
            f"with every {threat.unit} allowed to change, {standing} of {total} images still "
            "withstand Sparse-PGD: the attack is hindered, not the model robust",
        )


def varies(answers: Sequence[Tensor]) -> bool:
    """Whether answers to the same images differ by more than rounding."""
    directions = [torch.nn.functional.normalize(logits, dim=1) for logits in answers]
    return any(
        bool(((other - directions[0]).norm(dim=1) > TOLERANCE).any()) for other in directions[1:]
    )


def _probabilities(logits: Tensor) -> bool:
    inside = bool((logits > -1e-5).all()) and bool((logits < 1 + 1e-5).all())
    return inside and bool(((logits.sum(dim=1) - 1).abs() < 1e-5).all())


def _bad_gradients(
    oracle: Oracle, fetch: Fetch, positions: Sequence[int], threat: Threat, seed: int,
    loss: Callable[[Tensor, Tensor], Tensor],
) -> tuple[int, int]:  # fmt: skip
    """How many images have no usable gradient of a loss at Sparse-PGD's random start.

    Returns:
        Those without a finite entry that is not zero, and those with an entry that is not finite.
    """
    zeros = infinite = 0
    attack, stream = SparsePGD(), Stream.of("flags", seed)
    for place in range(0, len(positions), oracle.batch_size):
        images, labels, ids = fetch(positions[place : place + oracle.batch_size])
        start = attack.ask(attack.start(Rows(images, labels, ids, threat, stream, 0)))

        def objective(logits: Tensor, labels: Tensor = labels) -> Tensor:
            return loss(logits, labels)

        slope = oracle.gradient(start, objective, raw=True)[1].flatten(1)
        finite = slope.isfinite()
        zeros += int(((slope == 0) | ~finite).all(dim=1).sum())
        infinite += int((~finite).any(dim=1).sum())
    return zeros, infinite


def _unbounded(
    oracle: Oracle, fetch: Fetch, positions: Sequence[int], threat: Threat, seed: int
) -> int:
    """How many images survive Sparse-PGD when the budget is the whole image."""
    image = fetch(positions[:1])[0]
    everything = Threat.of(threat.shape(image)[1], threat.unit)
    attack = SparsePGD(steps=CONTROL_STEPS, projected=False)
    outcomes = search(
        attack, "unbounded-control", oracle, Waiting(positions, fetch), everything, seed
    )
    return sum(isinstance(event, Outcome) and not event.fooled for event in outcomes)


@contextmanager
def _autograd_calls() -> Iterator[list[None]]:
    """One entry per backward pass that runs inside the block, whoever starts it."""
    # torch.autograd.grad and .backward both end here; a model may hold its own reference to them.
    name = "_engine_run_backward"
    original = getattr(torch.autograd, name)
    calls: list[None] = []

    def counted(*args: object, **kwargs: object) -> object:
        calls.append(None)
        return original(*args, **kwargs)

    setattr(torch.autograd, name, counted)
    try:
        yield calls
    finally:
        setattr(torch.autograd, name, original)


def _calls_under_gradients(oracle: Oracle, images: Tensor, labels: Tensor) -> list[None]:
    """The same for the forward of a gradient call: a model may optimise only where it sees one."""
    before: list[None] = []
    with _autograd_calls() as calls:

        def objective(logits: Tensor) -> Tensor:
            before.extend(calls)  # so far: the oracle's own backward is still to come
            return margin(logits, labels)

        oracle.gradient(images, objective)
    return before


def _fatal(name: str, message: str) -> Flag:
    return Flag(name=name, fatal=True, message=message)
