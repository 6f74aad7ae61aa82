import errno
import os

import numpy as np
import pytest

from robust0.auditing import store
from robust0.auditing.attempts import Attempts, read_attempts
from robust0.auditing.store import Store, key_of, read_clock, read_verdicts
from robust0.errors import RunError
from robust0.records import CLEAN, Verdict
from robust0.threats.perturbation import Perturbation

SHAPE = (3, 2, 2)


def verdict(image, attack="a", *, fooled=True, margin=-0.1):
    clean = attack == CLEAN
    return Verdict(
        image=image, label=0, attack=attack, revision=1, unit="pixel", budget=0 if clean else 4,
        fooled=fooled, prediction=1, margin=margin, distance=4, needed=2, forwards=7, backwards=3,
        fragile=False, violation="",
    )  # fmt: skip


def attempt(image):
    return Perturbation(np.array([image % 4], np.int32), np.full((1, 3), 0.5, np.float32))


def opened(folder, rank=0):
    made = Store(folder, rank, "pixel", SHAPE)
    return made, made.open()


def flush(made, *verdicts):
    attempts = {key_of(v): attempt(v.image) for v in verdicts if v.attack != CLEAN}
    made.flush(list(verdicts), attempts)


def merge(folder):
    found = sorted(read_verdicts(folder), key=key_of)
    store.merge_parts(folder, found, Attempts("pixel", SHAPE, {}))


def test_verdicts_come_back_exactly(tmp_path):
    made, before = opened(tmp_path)
    assert before == []
    written = [verdict(1, margin=-0.1 - 1e-17), verdict(2, fooled=False, margin=1 / 3)]
    flush(made, verdict(9, CLEAN))
    flush(made, *written)
    assert opened(tmp_path)[1] == [verdict(9, CLEAN), *written]


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_cut_by_a_crash_is_dropped_and_overwritten(tmp_path, cut):
    made, _ = opened(tmp_path)
    flush(made, verdict(1), verdict(2))
    path = tmp_path / store.VERDICTS
    os.truncate(path, path.stat().st_size - cut)
    made, before = opened(tmp_path)
    assert before == [verdict(1)]
    flush(made, verdict(2))
    assert opened(tmp_path)[1] == [verdict(1), verdict(2)]
    assert path.read_bytes().count(b"\n") == 2


def test_damage_in_the_middle_is_refused(tmp_path):
    made, _ = opened(tmp_path)
    flush(made, verdict(1), verdict(2))
    path = tmp_path / store.VERDICTS
    lines = path.read_text().splitlines()
    path.write_text(lines[0][:20] + "\n" + lines[1] + "\n")
    with pytest.raises(RunError, match="line 1"):
        read_verdicts(tmp_path)
    path.write_text('{"image": 1}\n' + lines[1] + "\n")
    with pytest.raises(RunError, match=r"line 1 .* is not a verdict"):
        read_verdicts(tmp_path)


def test_attempts_are_durable_before_their_verdicts(tmp_path, monkeypatch):
    made, _ = opened(tmp_path)
    done = []
    real = store.append_synced
    monkeypatch.setattr(store, "write_attempts", lambda *a: done.append("attempts"))
    monkeypatch.setattr(store, "append_synced", lambda *a: (done.append("verdicts"), real(*a)))
    flush(made, verdict(1))
    assert done == ["attempts", "verdicts"]


def test_a_shard_without_verdicts_is_ignored(tmp_path):
    made, _ = opened(tmp_path)
    flush(made, verdict(1))
    size = (tmp_path / store.VERDICTS).stat().st_size
    flush(made, verdict(2))
    os.truncate(tmp_path / store.VERDICTS, size)  # killed between the two writes
    made, before = opened(tmp_path)
    assert before == [verdict(1)]
    flush(made, verdict(3))  # under a number of its own
    merge(tmp_path)
    assert set(read_attempts(tmp_path / store.ATTEMPTS).found) == {(4, "a", 1), (4, "a", 3)}


def test_processes_write_apart_and_are_merged(tmp_path):
    lead, _ = opened(tmp_path)
    other, _ = opened(tmp_path, rank=1)
    flush(lead, verdict(1))
    flush(other, verdict(2), verdict(3))
    assert lead.others() == [verdict(2), verdict(3)]
    assert lead.others() == []
    flush(other, verdict(4))
    part = tmp_path / "parts" / "verdicts-1.jsonl"
    with part.open("a") as file:
        file.write('{"image": 5, "lab')
    assert lead.others() == [verdict(4)]  # not the line still being written
    merge(tmp_path)
    store.drop_parts(tmp_path)
    assert sorted(read_verdicts(tmp_path), key=key_of) == [verdict(n) for n in (1, 2, 3, 4)]
    assert len(read_attempts(tmp_path / store.ATTEMPTS).found) == 4
    assert not (tmp_path / "parts").exists()


def test_a_merge_may_be_cut_short_and_repeated(tmp_path):
    lead, _ = opened(tmp_path)
    other, _ = opened(tmp_path, rank=1)
    flush(lead, verdict(1))
    flush(other, verdict(2))
    merge(tmp_path)  # killed before the parts were removed
    assert len((tmp_path / store.VERDICTS).read_text().splitlines()) == 2
    first = (tmp_path / store.ATTEMPTS).read_bytes()
    opened(tmp_path)
    merge(tmp_path)
    assert len((tmp_path / store.VERDICTS).read_text().splitlines()) == 2
    assert (tmp_path / store.ATTEMPTS).read_bytes() == first


def test_a_verdict_without_its_attempt_is_refused(tmp_path):
    made, _ = opened(tmp_path)
    flush(made, verdict(1))
    for path in (tmp_path / "parts").glob("attempts-*"):
        path.unlink()
    with pytest.raises(RunError, match="attempt of a on image 1 is missing"):
        merge(tmp_path)


def test_the_clock_adds_up(tmp_path):
    for rank in (0, 1):
        made, _ = opened(tmp_path, rank)
        made.spent("a", 1.5)
        made.spent("a", 1.0)
        flush(made, verdict(rank))
    made.spent("", 9.0)
    made.close()
    assert read_clock(tmp_path) == (9.0, {"a": 5.0})


def test_a_full_disk_is_a_refusal_that_says_how_to_go_on(tmp_path, monkeypatch):
    made, _ = opened(tmp_path)
    flush(made, verdict(1))

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match="No space left") as caught:
            flush(made, verdict(2))
    assert "--resume" in caught.value.hint
    assert opened(tmp_path)[1][:1] == [verdict(1)]


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made, before = opened(None)
    flush(made, verdict(1))
    made.spent("a", 1.0)
    made.close()
    assert (before, made.others(), made.seconds) == ([], [], {"a": 1.0})
    assert list(tmp_path.iterdir()) == []
