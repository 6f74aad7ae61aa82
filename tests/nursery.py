"""Real processes for tests: forks of one process that has imported torch and computed nothing.

Importing torch and timm takes longer than what these tests run. Forks can be killed, interrupted
and joined to ranks like any other process; they are as good as new.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """
import json, os, sys
import robust0.auditing.estimate, robust0.auditing.run, robust0.certifying.run, timm
import robust0.commands.audit, robust0.commands.certify, robust0.commands.harden
import robust0.training.loop, torch._dynamo, torch.nn.parallel
from robust0.cli.app import run

def fork(wanted):
    child = os.fork()
    if child:
        return child
    try:
        os.chdir(wanted["folder"])
        os.environ.clear()
        os.environ.update(wanted["environment"])
        sys.path.insert(0, wanted["folder"])
        file = os.open(wanted["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        code = run(wanted["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        code = 99
    os._exit(code)

for line in sys.stdin:
    wanted = json.loads(line)
    if "arguments" in wanted:
        answer = fork(wanted)
    else:
        gone, status = os.waitpid(wanted["pid"], os.WNOHANG)
        answer = os.waitstatus_to_exitcode(status) if gone else None
    print(json.dumps(answer), flush=True)
os._exit(0)
"""


class Nursery:
    """Where processes of robust0 come from."""

    def __init__(self):
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._server = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM], text=True, stdin=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._outputs = tempfile.TemporaryDirectory()

    def ask(self, **wanted):
        self._server.stdin.write(json.dumps(wanted) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def start(self, *arguments, **environment):
        """``robust0 ARGUMENTS`` in a process of its own, in the present working directory."""
        _, output = tempfile.mkstemp(dir=self._outputs.name)
        pid = self.ask(
            arguments=arguments, folder=str(Path.cwd()), output=output,
            environment={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )  # fmt: skip
        return Process(self, pid, Path(output))

    def start_two(self, *arguments, **environment):
        """Two ranks of one run, without a launcher that watches them."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **environment}
        return [self.start(*arguments, **shared, RANK=rank, LOCAL_RANK=rank) for rank in ("0", "1")]

    def close(self):
        self._server.stdin.close()
        self._server.wait(timeout=30)
        self._server.stdout.close()
        self._outputs.cleanup()


class Process:
    """One of the forks."""

    def __init__(self, nursery, pid, output):
        self.pid = pid
        self._nursery = nursery
        self._output = output
        self._code = None

    def poll(self):
        """Its exit code, or None while it runs."""
        if self._code is None:
            self._code = self._nursery.ask(pid=self.pid)
        return self._code

    def wait(self, seconds=120):
        end = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > end:
                self.kill()
                raise AssertionError(f"still running after {seconds} s: {self.output()}")
            time.sleep(0.01)
        return self._code

    def finish(self):
        """Wait for a good end."""
        assert self.wait() == 0, self.output()

    def kill(self):
        """Whether it was still alive."""
        alive = self.poll() is None
        if alive:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        return alive

    def output(self):
        return self._output.read_text()


@pytest.fixture(scope="session")
def nursery():
    made = Nursery()
    yield made
    made.close()
