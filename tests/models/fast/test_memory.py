"""Memory that a process keeps for its next model call: where glibc puts blocks, what is in them."""

import subprocess
import sys

import pytest

# Blocks of 40 MiB, which glibc by itself maps one by one and unmaps when they are freed. Read
# after that, the first would end the process: what it prints shows that it was kept.
PROGRAM = """
import ctypes
import threading
from robust0.models.fast.memory import freed_memory_kept

MIB = 1 << 20
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p

def block(mebibytes):
    address = libc.malloc(ctypes.c_size_t(mebibytes * MIB))
    ctypes.memset(address, 1, mebibytes * MIB)
    return address

def free(address):
    libc.free(ctypes.c_void_p(address))

def middle(address):
    return ctypes.c_ubyte.from_address(address + 20 * MIB).value

with freed_memory_kept():
    first, guard, last = block(40), block(40), block(40)
    free(first)
    print("kept between", middle(first))
    free(last)
    print("kept at the top", middle(last))
    found = []
    thread = threading.Thread(target=lambda: found.append(block(30)))
    thread.start()
    thread.join()
    print("reused by a thread", any(0 <= found[0] - old < 10 * MIB for old in (first, last)))
    free(found[0])
print("at the end", middle(first))
"""
PRINTED = """\
kept between 1
kept at the top 1
reused by a thread True
at the end 0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_blocks_stay_for_any_thread_and_go_back_at_the_end():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, PRINTED), done.stderr


def test_it_can_be_nested_and_passes_errors_on():
    from robust0.models.fast.memory import freed_memory_kept

    with pytest.raises(KeyError), freed_memory_kept(), freed_memory_kept():
        raise KeyError
