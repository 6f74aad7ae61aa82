"""One thread per process: tests run two at a time, and thread counts are part of identities."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, and for child processes
