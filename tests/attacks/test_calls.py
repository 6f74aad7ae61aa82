"""Several model calls at once: as many as there are lanes, on copies, and all of them ended."""

import threading
import time

import pytest
import torch
from torch import nn

from robust0.attacks.engine import Outcome, Waiting, search
from robust0.attacks.sparse_rs import SparseRS
from robust0.models.fast.oracle import Oracle, frozen
from robust0.threats import Threat

CPU = torch.device("cpu")
ATTACK, THREAT = SparseRS(queries=6), Threat.of(2)


class Bright(nn.Module):
    """Class 0 below a mean that two pixels do not reach; notes who is inside at once."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Parameter(torch.tensor(0.9))
        self.inside = 0
        self.shared = Shared()

    def forward(self, images):
        self.inside += 1
        with self.shared.lock:
            self.shared.now += 1
            self.shared.most = max(self.shared.most, self.shared.now)
            self.shared.crowded |= self.inside > 1
        time.sleep(0.005)
        bright = images.mean(dim=(1, 2, 3)) - self.line
        with self.shared.lock:
            self.shared.now -= 1
        self.inside -= 1
        return torch.stack([-bright, bright], dim=1)


class Shared:
    """What all copies of a network see."""

    def __init__(self) -> None:
        self.lock, self.now, self.most, self.crowded = threading.Lock(), 0, 0, False

    def __deepcopy__(self, memo):
        return self


def events(oracle, count=96, attack=ATTACK):
    images = torch.zeros(count, 1, 4, 4)

    def fetch(positions):
        index = torch.tensor(positions)
        return images[index], torch.zeros_like(index), index

    return search(attack, "sparse-rs", oracle, Waiting(range(count), fetch), THREAT, 0)


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_as_many_calls_at_once_as_lanes_each_on_a_copy(lanes):
    model = Bright()
    oracle = Oracle(model, 16, CPU, lanes=lanes)
    with frozen(model):
        outcomes = [event for event in events(oracle) if isinstance(event, Outcome)]
    assert len(outcomes) == 96
    assert all(outcome.forwards == 6 for outcome in outcomes)
    assert oracle.calls == 36  # all of them full
    assert lanes <= model.shared.most <= lanes + 1  # and the judge
    assert not model.shared.crowded


def test_a_network_that_cannot_be_copied_gets_one_lane():
    model = Bright()
    model.shared.__class__ = type("Uncopied", (Shared,), {"__deepcopy__": _refuse})
    oracle = Oracle(model, 16, CPU, lanes=4)
    assert oracle.lanes == 1
    with frozen(model):
        assert sum(isinstance(event, Outcome) for event in events(oracle)) == 96
    assert model.shared.most == 1


def _refuse(self, memo):
    raise TypeError("cannot pickle '_thread.lock' object")


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_rows_whose_hits_do_not_hold_go_back_to_waiting_lanes(lanes):
    class Liar(Bright):
        def __deepcopy__(self, memo):
            twin = Liar()
            twin.line.data.fill_(-1.0)  # everything is bright
            return twin

    model = Liar()
    oracle = Oracle(model, 16, CPU, search_dtype=torch.bfloat16, lanes=lanes)
    with frozen(model):
        outcomes = [event for event in events(oracle, count=20) if isinstance(event, Outcome)]
    assert sorted(outcome.image for outcome in outcomes) == list(range(20))
    assert not any(outcome.fooled for outcome in outcomes)
    assert all(outcome.forwards == 6 for outcome in outcomes)


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_hit_that_does_not_hold_costs_its_row_no_calls_of_its_own(lanes):
    class LiesOnce(Bright):
        lies = False

        def __deepcopy__(self, memo):
            twin = LiesOnce()
            twin.lies = True
            return twin

        def forward(self, images):
            logits = super().forward(images)
            if self.lies:
                logits[0] = -logits[0]
                self.lies = False
            return logits

    model = LiesOnce()
    oracle = Oracle(model, 16, CPU, search_dtype=torch.bfloat16, lanes=lanes)
    with frozen(model):
        found = list(events(oracle, count=64, attack=SparseRS(queries=80)))
    outcomes = [event for event in found if isinstance(event, Outcome)]
    assert [outcome.forwards for outcome in outcomes] == [80] * 64
    assert oracle.calls <= 1.1 * 64 * 80 / 16  # alone, the row would need 79 more


def test_what_goes_wrong_in_a_thread_reaches_the_caller_and_ends_the_others():
    class Broken(Bright):
        def forward(self, images):
            logits = super().forward(images)
            if threading.current_thread() is not threading.main_thread():
                raise RuntimeError("out of memory")
            return logits

    model = Broken()
    before = threading.active_count()
    with frozen(model), pytest.raises(RuntimeError, match="out of memory"):
        list(events(Oracle(model, 16, CPU, lanes=2)))
    assert threading.active_count() == before


def test_a_search_that_is_left_ends_its_threads():
    model = Bright()
    before = threading.active_count()
    with frozen(model):
        running = events(Oracle(model, 16, CPU, lanes=2))
        next(running)
        assert threading.active_count() > before
        running.close()
    assert threading.active_count() == before


def test_copies_are_still_whatever_the_model_is_doing():
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 2)).train()
    oracle = Oracle(model, 16, CPU, lanes=2)
    images = torch.rand(16, 1, 4, 4)
    statistics = model[1].running_mean.clone()
    oracle.logits(images)
    oracle.gradient(images, lambda logits: logits.sum(dim=1))
    assert torch.equal(model[1].running_mean, statistics)
    assert all(weight.grad is None for weight in model.parameters())
