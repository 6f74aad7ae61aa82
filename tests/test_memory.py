"""Memory that a process keeps for its next model call: seen from outside, in page faults."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource
import threading
import torch
from robust0.memory import freed_memory_kept

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def work():
    for _ in range(20):
        blocks = [torch.ones(1 << 22) for _ in range(4)]  # 16 MiB each

def counted():
    work()
    before = faults()
    work()
    return faults() - before

def in_both_threads():
    numbers = [counted()]
    thread = threading.Thread(target=lambda: numbers.append(counted()))
    thread.start()
    thread.join()
    return sum(numbers)

def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize() >> 20

if {kept}:
    with freed_memory_kept():
        print(in_both_threads(), resident())
else:
    print(in_both_threads(), resident())
print(resident())
"""


def counted(*, kept: bool) -> tuple[int, int, int]:
    """Page faults, then MiB in memory before and after the end of the block."""
    command = [sys.executable, "-c", PROGRAM.format(kept=kept)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    faults, before, after = done.stdout.split()
    return int(faults), int(before), int(after)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_blocks_are_reused_and_given_back_at_the_end():
    (faults, inside, after), (without, _, _) = counted(kept=True), counted(kept=False)
    assert faults < without / 10
    assert after < inside - 64


def test_it_can_be_nested_and_passes_errors_on():
    from robust0.memory import freed_memory_kept

    with pytest.raises(KeyError), freed_memory_kept(), freed_memory_kept():
        raise KeyError
