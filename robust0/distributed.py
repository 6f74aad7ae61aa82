"""The processes torchrun started, or just this one."""

import inspect
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from robust0.errors import TrainingError


@dataclass(frozen=True, slots=True)
class World:
    """This process among its peers; with one process every exchange is the identity."""

    rank: int = 0
    size: int = 1
    restarts: int = 0  # how often torchrun has restarted the group

    @property
    def leads(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    def average_(self, tensors: list[Tensor]) -> None:
        """Replace tensors by their mean over processes."""
        if self.size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)
                tensor.div_(self.size)

    def gather(self, tensor: Tensor) -> Tensor:
        """Equal-shaped tensors of all processes, concatenated in rank order."""
        if self.size == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    def largest(self, value: int, device: torch.device) -> int:
        """The largest value any process holds."""
        if self.size == 1:
            return value
        held = torch.tensor([value], device=device)
        dist.all_reduce(held, op=dist.ReduceOp.MAX)
        return int(held.item())

    def wait(self) -> None:
        """Continue when every process has come here."""
        if self.size > 1:
            dist.barrier()


_LOST = re.compile(r"gloo|nccl|c10d|connection (closed|reset|refused)|peer", re.IGNORECASE)


@contextmanager
def together(size: int) -> Iterator[None]:
    """Say that another process is gone, where the library only tells of a closed connection."""
    try:
        yield
    except RuntimeError as problem:
        if size == 1 or not _LOST.search(str(problem)):
            raise
        raise TrainingError(
            "another process of this run has died or cannot be reached",
            "go on from the last snapshot with --resume; torchrun restarts all by itself",
        ) from problem


def launched() -> bool:
    """Whether torchrun (or another launcher that sets its variables) started this process."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def local_device(device: torch.device) -> torch.device:
    """The device of this process: each of several on one host takes its own GPU."""
    if device.type != "cuda" or not launched():
        return device
    own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(own)
    return own


def parallel(network: nn.Module, device: torch.device) -> nn.Module:
    """The network as processes train it together: gradients are averaged, buffers left alone.

    Two forwards share one backward in training: broadcasting buffers between them would break it.
    """
    known = inspect.signature(DistributedDataParallel).parameters
    switch = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    options: dict[str, Any] = {switch: False}
    if device.type == "cuda":
        options["device_ids"] = [device]
    return DistributedDataParallel(network, **options)


@contextmanager
def world(device: torch.device) -> Iterator[World]:
    """Join the process group for as long as the block runs."""
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if not launched():
        yield World(restarts=restarts)
        return
    store, rank, size = next(iter(rendezvous("env://")))
    # The launcher's store outlives a restart: without a prefix of its own, a restarted process may
    # read the address of one that has died.
    store = PrefixStore(f"robust0-attempt-{restarts}", store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    try:
        yield World(rank, size, restarts)
    finally:
        dist.destroy_process_group()
