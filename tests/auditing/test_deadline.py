"""A limit of time: which round still begins."""

from robust0.auditing.deadline import Deadline, timed_out
from robust0.records import in_round
from tests.auditing.test_rounds import COST, plan, started, verdict


def first_round():
    """What a first round leaves that broke half of 100 images, and the passes it took."""
    book = started()
    book.add([verdict(image, "x#1", fooled=True) for image in range(50)])
    rest = [in_round(name, 1) for name in COST if name != "x"]
    book.add([verdict(99, name, fooled=False) for name in rest])
    return book, sum(book.spent.values())


def late(book, seconds, minutes, stage=(4, "guided-swap#2")):
    moments = iter([0.0, *[seconds] * 9])
    deadline = Deadline(plan(), minutes, clock=lambda: next(moments))
    deadline.start(None)
    return list(deadline.reached(stage, range(100), book))


def test_a_round_begins_only_if_it_is_likely_to_end_in_time():
    book, spent = first_round()
    # 50 survivors, up to 2 * (4 + 10 + 2) passes each, at the pace of the first round.
    needed = 30 * (1 + 50 * 32 / spent)
    assert not late(book, 30, needed / 60 + 0.01)
    assert not book.timed_out
    assert not late(book, 30, None)
    (flag,) = late(book, 30, needed / 60 - 0.01)
    assert flag.fatal
    assert timed_out([flag])
    assert book.timed_out
    assert not late(book, 30, 0.01)  # said once
    assert not plan().includes((4, "guided-swap#2"), book)
    assert plan().includes((4, "guided-swap#1"), book)


def test_the_first_round_and_one_that_has_begun_go_on():
    book, _ = first_round()
    assert not late(book, 1e9, 0.01, (4, "sparse-rs#1"))
    book.add([verdict(99, "guided-swap#2", fooled=False)])
    assert not late(book, 1e9, 0.01, (4, "sparse-rs#2"))
    book.timed_out = True
    assert plan().includes((4, "sparse-rs#2"), book)
    assert not plan().includes((4, "sparse-rs#3"), book)
