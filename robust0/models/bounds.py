"""How large a network a checkpoint may ask for: hardly larger than the weights it brings."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from robust0.errors import ModelError

# A network may make a tensor that it replaces, and tables that are not stored with its weights.
_SPARE_TENSORS = 64
_SPARE_VALUES = 50_000_000
_HINT = "do not trust this file: its arguments do not belong to its weights"


@contextmanager
def bounded(tensors: int, values: int, where: str) -> Iterator[None]:
    """Inside, building ends as soon as there are far more parameters than a file holds.

    Args:
        tensors: of the file.
        values: numbers in all of them together.
        where: the file, for messages.
    """
    seen = [0, 0]

    def count(_module: nn.Module, _name: str, parameter: nn.Parameter) -> None:
        seen[0] += 1
        seen[1] += parameter.numel()
        if seen[0] > 2 * tensors + _SPARE_TENSORS or seen[1] > 2 * values + _SPARE_VALUES:
            raise ModelError(
                f"{where} asks for a network far larger than the {tensors} tensors in it", _HINT
            )

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def check_tables(outline: nn.Module, values: int, where: str) -> None:
    """Refuse a network whose tables, which no file stores, would take far more than its weights.

    Args:
        outline: the network, without memory.
        values: numbers in the file's tensors.
        where: the file, for messages.
    """
    wanted = sum(tensor.numel() for tensor in chain(outline.parameters(), outline.buffers()))
    if wanted > 2 * values + _SPARE_VALUES:
        raise ModelError(
            f"{where} asks for a network of {wanted:,} numbers, it has {values:,}", _HINT
        )
