"""Conditions under which an audit runs: repeatable kernels, and a clear word when memory ends."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from robust0.errors import EvaluationError
from robust0.models.fast.memory import freed_memory_kept, out_of_memory
from robust0.models.fast.oracle import frozen


@contextmanager
def searching(network: nn.Module, threads: int) -> Iterator[None]:
    """All that a model call depends on besides its images.

    Compiled code is made for one such state: whoever calls the network under another one, if only
    to measure what a call costs, waits for a second compilation.
    """
    with frozen(network), exact_kernels(), threads_per_call(threads), freed_memory_kept():
        yield


@contextmanager
def exact_kernels() -> Iterator[None]:
    """The same kernels for the same shapes, in full float32, so that verdicts can be repeated."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def threads_per_call(count: int) -> Iterator[None]:
    """Model calls use this many threads inside, also those made by other threads of Python."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def enough_memory(rows: int) -> Iterator[None]:
    """Say what to do when a call does not fit; its size is part of the run's identity."""
    try:
        yield
    except (RuntimeError, MemoryError) as problem:
        if not out_of_memory(problem):
            raise
        raise EvaluationError(
            f"out of memory at {rows} images per call",
            f"start a new run with --batch-size {max(16, rows // 2)}",
        ) from problem
