"""One thread per process: tests run two at a time, and thread counts are part of identities."""

import os

from hypothesis import settings

from tests.nursery import nursery as nursery

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, and for child processes
settings.register_profile("robust0", deadline=None)  # a busy machine is no failure
settings.load_profile("robust0")
