"""An audit does not wait for a process that is gone."""

import time

import pytest

from robust0.auditing import heartbeat
from robust0.auditing.heartbeat import LifeSigns, beating
from robust0.auditing.run import run_audit
from robust0.distributed import World
from robust0.errors import EvaluationError
from tests.auditing.test_run import in_folder


def test_silence_is_measured_by_the_leaders_own_clock(tmp_path):
    (tmp_path / "parts").mkdir()
    moment = [0.0]
    signs, sign = LifeSigns(tmp_path, lambda: moment[0]), tmp_path / "parts" / "alive-1"
    signs.look([1, 2])
    for moment[0] in range(0, 300, 30):
        sign.write_text(str(moment[0]))
        signs.look([1])
    moment[0] += heartbeat.SILENT_SECONDS + 1
    signs.look([])
    with pytest.raises(EvaluationError, match="process 1 of the audit has stopped"):
        signs.look([1])


def wait_for_a_sign(sign, old):
    """A count other than the old one; a file that is just being written is empty."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = sign.read_text() if sign.exists() else ""
        if found not in ("", old):
            return found
        time.sleep(0.005)
    raise AssertionError("the process has stopped beating")


def test_processes_beat_while_they_work(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.01)
    sign = tmp_path / "parts" / "alive-1"
    with beating(tmp_path, 1):
        sign.parent.mkdir()  # not there yet when it begins
        first = wait_for_a_sign(sign, "")
        assert wait_for_a_sign(sign, first)
    last = sign.read_text()
    time.sleep(0.05)
    assert sign.read_text() == last


def test_the_leader_gives_up_on_a_process_that_never_came(make_job, tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "SILENT_SECONDS", 0.3)
    job = in_folder(make_job(), tmp_path / "run")
    with pytest.raises(EvaluationError, match=r"process 1 .* has stopped"):
        list(run_audit(job, World(rank=0, size=2), resume=False))
