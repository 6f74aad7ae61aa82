"""How the process keeps memory while a model is called again and again, and when it ran out.

Each call frees the large blocks that the next one asks for. Left to itself, glibc gives many of
them back to the kernel, which clears every page anew: up to a sixth of a forward pass on a CPU.
"""

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h
_NEVER = -1
# As allocators of several devices put it; the CPU's says "can't allocate memory".
_FULL = re.compile(r"out of memory|(can't|cannot|not enough memory to) allocate|not enough memory")
_LARGE = (1 << 30, 1 << 25)  # older releases of glibc refuse more than the second


def out_of_memory(problem: BaseException) -> bool:
    """Whether an error means that memory ran out, on any device."""
    return isinstance(problem, torch.OutOfMemoryError | MemoryError) or (
        isinstance(problem, RuntimeError) and _FULL.search(str(problem).lower()) is not None
    )


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Freed blocks stay for reuse by any thread, and go back at the end; only with glibc.

    What is set holds for the rest of the process, because glibc does not tell what it was.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    settle = getattr(library, "mallopt", None)
    if settle is not None:
        settle(_TRIM_THRESHOLD, _NEVER)
        any(settle(_MMAP_THRESHOLD, size) for size in _LARGE)
        settle(_ARENA_MAX, 1)
    try:
        yield
    finally:
        give_back = getattr(library, "malloc_trim", None)
        if give_back is not None:
            give_back(0)
