"""The engine, driven by attacks that follow a script."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from robust0.attacks import engine
from robust0.attacks.base import Reply, State, begin
from robust0.attacks.calls import Pulse
from robust0.attacks.engine import Outcome, Waiting, search
from robust0.models.fast.oracle import Oracle, frozen
from robust0.threats import Threat

CPU = torch.device("cpu")


class Mean(nn.Module):
    """Class 1 once the mean of the image exceeds a half."""

    def forward(self, images):
        lead = images.flatten(1).mean(dim=1) - 0.5
        return torch.stack([-lead, lead], dim=1)


@dataclass(frozen=True, kw_only=True)
class Scripted:
    """Query n of image i paints ``sites[n]`` sites in ``values[n]``; ``lives`` is when i ends."""

    kind: ClassVar[str] = "scripted"
    revision: ClassVar[int] = 1
    black_box: ClassVar[bool] = False

    sites: tuple[int, ...]
    values: tuple[float, ...]
    lives: tuple[int, ...]
    gradient_every: int = 0
    leaves_budget: bool = False
    told: list[tuple[bool, int]] = field(default_factory=list)

    def start(self, rows):
        return State(**begin(rows))

    def wants_gradient(self, state: State) -> Tensor:
        if not self.gradient_every:
            return torch.zeros_like(state.step, dtype=torch.bool)
        return (state.step + state.ids) % self.gradient_every == 0

    def ask(self, state: State) -> Tensor:
        step = state.step % len(self.sites)
        painted = torch.arange(state.clean.shape[2]) < torch.tensor(self.sites)[step][:, None]
        value = torch.tensor(self.values)[step][:, None, None]
        return state.image(torch.where(painted[:, None], value, state.clean))

    def objective(self, state: State, logits: Tensor) -> Tensor:
        return logits[:, 1]

    def tell(self, state: State, reply: Reply) -> Tensor:
        wanted = self.wants_gradient(state)
        assert bool((wanted == (reply.gradient is not None)).all())
        if reply.gradient is not None:
            assert reply.gradient.shape == state.clean.shape
            assert torch.allclose(reply.gradient, torch.tensor(1 / state.clean[0].numel()))
        self.told.append((reply.gradient is not None, len(wanted)))
        state.step = state.step + 1
        return state.step >= torch.tensor(self.lives)[state.ids % len(self.lives)]


def run(attack, threat, *, images=None, labels=None, oracle=None, count=1):
    images = torch.full((count, 1, 4, 5), 0.25) if images is None else images
    labels = torch.zeros(len(images), dtype=torch.int64) if labels is None else labels
    oracle = oracle or Oracle(Mean(), 16, CPU)

    def fetch(positions):
        chosen = slice(positions[0], positions[-1] + 1)
        return images[chosen], labels[chosen], torch.arange(len(images))[chosen]

    with frozen(oracle.model):
        return list(
            search(attack, "scripted", oracle, Waiting(range(len(images)), fetch), threat, 0)
        )


def search_through(oracle, network):
    """Give the search another network than the judge's."""
    oracle._free.get()
    oracle._free.put(lambda images: (network(images),) * 2)


def outcomes_of(events):
    return sorted((e for e in events if isinstance(e, Outcome)), key=lambda o: o.image)


def test_a_survivor_carries_the_lowest_margin_it_reached():
    attack = Scripted(sites=(2, 5, 3), values=(1.0, 1.0, 0.5), lives=(3,))
    (outcome,) = outcomes_of(run(attack, Threat.of(5)))
    assert not outcome.fooled
    assert (outcome.forwards, outcome.backwards, outcome.distance) == (3, 0, 5)
    lead = 0.25 + 5 * 0.75 / 20 - 0.5
    assert outcome.margin == pytest.approx(-2 * lead)
    assert outcome.prediction == 0
    assert outcome.attempt.places.tolist() == [0, 1, 2, 3, 4]
    assert outcome.attempt.values.tolist() == [[1.0]] * 5


def test_attempts_beyond_the_budget_are_passed_over_by_minimum_norm_attacks():
    attack = Scripted(sites=(2, 20, 3), values=(1.0,) * 3, lives=(3,), leaves_budget=True)
    (outcome,) = outcomes_of(run(attack, Threat.of(5)))
    assert (outcome.fooled, outcome.distance, outcome.forwards) == (False, 3, 3)
    assert outcome.violation == ""


def test_a_minimum_norm_attack_that_never_enters_the_budget_returns_the_clean_image():
    attack = Scripted(sites=(20,), values=(1.0,), lives=(2,), leaves_budget=True)
    (outcome,) = outcomes_of(run(attack, Threat.of(5)))
    assert (outcome.fooled, outcome.distance, outcome.violation) == (False, 0, "")
    assert outcome.margin == pytest.approx(0.5)


def test_a_hit_retires_its_row_at_once():
    attack = Scripted(sites=(2, 10, 4), values=(1.0,) * 3, lives=(3,))
    (outcome,) = outcomes_of(run(attack, Threat.of(10)))
    assert (outcome.fooled, outcome.prediction, outcome.forwards, outcome.distance) == (
        True,
        1,
        2,
        10,
    )
    assert outcome.margin < 0


@pytest.mark.parametrize(
    ("sites", "value", "violation"),
    [(11, 1.0, "beyond the budget"), (10, 1.5, "outside [0, 1]"), (10, math.inf, "not finite")],
)
def test_a_lying_attack_is_a_violation_and_not_a_hit(sites, value, violation):
    attack = Scripted(sites=(2, sites), values=(1.0, value), lives=(5,))
    (outcome,) = outcomes_of(run(attack, Threat.of(10)))
    assert (outcome.fooled, outcome.violation) == (False, violation)


def test_a_refuted_hit_goes_on_with_the_budget_left():
    """The search's network is fooled too early; the eager one has the last word."""
    attack = Scripted(sites=(3, 3, 8, 1), values=(1.0,) * 4, lives=(4,))
    oracle = Oracle(Mean(), 16, CPU)
    search_through(oracle, lambda images: Mean()(images + 0.3))
    (outcome,) = outcomes_of(run(attack, Threat.of(8), oracle=oracle))
    assert (outcome.fooled, outcome.forwards, outcome.distance) == (True, 3, 8)


def test_a_refuted_hit_at_the_end_of_the_budget_is_a_survivor():
    attack = Scripted(sites=(3,), values=(1.0,), lives=(2,))
    oracle = Oracle(Mean(), 16, CPU)
    search_through(oracle, lambda images: Mean()(images + 0.3))
    (outcome,) = outcomes_of(run(attack, Threat.of(8), oracle=oracle))
    assert (outcome.fooled, outcome.forwards, outcome.distance) == (False, 2, 3)
    assert outcome.margin == pytest.approx(-2 * (0.25 + 3 * 0.75 / 20 - 0.5))


@pytest.mark.parametrize("lives", [2, 3])
def test_a_refuted_hit_does_not_replace_a_lower_margin(lives):
    """Five sites come nearest; the search alone believes that two of them fool the model."""
    attack = Scripted(sites=(5, 2, 1), values=(1.0,) * 3, lives=(lives,))
    oracle = Oracle(Mean(), 16, CPU)

    def believing(images):
        answers = Mean()(images)
        two = (images != 0.25).flatten(1).sum(dim=1) == 2
        return torch.where(two[:, None], answers.flip(1), answers)

    search_through(oracle, believing)
    (outcome,) = outcomes_of(run(attack, Threat.of(5), oracle=oracle))
    assert (outcome.fooled, outcome.forwards, outcome.distance) == (False, lives, 5)
    assert outcome.margin == pytest.approx(-2 * (0.25 + 5 * 0.75 / 20 - 0.5))


def test_a_refuted_hit_with_the_lowest_margin_is_kept():
    attack = Scripted(sites=(2, 5, 1), values=(1.0,) * 3, lives=(3,))
    oracle = Oracle(Mean(), 16, CPU)
    search_through(oracle, lambda images: Mean()(images + 0.1))
    (outcome,) = outcomes_of(run(attack, Threat.of(5), oracle=oracle))
    assert (outcome.fooled, outcome.forwards, outcome.distance) == (False, 3, 5)


def test_pulses_add_up_to_the_passes_of_all_rows():
    attack = Scripted(sites=(1,), values=(1.0,), lives=(3, 8, 1, 5), gradient_every=3)
    events = run(attack, Threat.of(2), count=50)
    outcomes = outcomes_of(events)
    pulses = [event for event in events if isinstance(event, Pulse)]
    assert [outcome.forwards for outcome in outcomes] == [(3, 8, 1, 5)[i % 4] for i in range(50)]
    assert sum(pulse.rows for pulse in pulses) == sum(o.forwards for o in outcomes)
    steep = sum(pulse.rows for pulse in pulses if pulse.gradient)
    assert steep == sum(outcome.backwards for outcome in outcomes)
    for outcome in outcomes:
        wanted = sum((step + outcome.image) % 3 == 0 for step in range(outcome.forwards))
        assert outcome.backwards == wanted
    assert sum(rows for _, rows in attack.told) == sum(pulse.rows for pulse in pulses)


@pytest.mark.parametrize("calls", [2, 8])
def test_calls_are_full_but_at_the_very_end(calls, monkeypatch):
    monkeypatch.setattr(engine, "POOL_CALLS", calls)
    lives = tuple(range(1, 30))
    attack = Scripted(sites=(1,), values=(1.0,), lives=lives)
    oracle = Oracle(Mean(), 16, CPU)
    events = run(attack, Threat.of(2), count=290, oracle=oracle)
    total = sum(outcome.forwards for outcome in outcomes_of(events))
    assert total == 10 * sum(lives)
    assert oracle.calls * 16 <= 1.15 * total


def test_images_are_fetched_as_slots_come_free(monkeypatch):
    monkeypatch.setattr(engine, "POOL_CALLS", 2)
    attack = Scripted(sites=(1,), values=(1.0,), lives=(1, 4, 2))
    images = torch.full((200, 1, 4, 5), 0.25)
    labels, ids = torch.zeros(200, dtype=torch.int64), torch.arange(200)
    held = 0

    def fetch(positions):
        nonlocal held
        held += len(positions)
        assert held <= 32
        chosen = torch.tensor(positions)
        return images[chosen], labels[chosen], ids[chosen]

    waiting = Waiting(range(200), fetch)
    finished = []
    oracle = Oracle(Mean(), 16, CPU)
    for event in search(attack, "scripted", oracle, waiting, Threat.of(2), 0):
        if isinstance(event, Outcome):
            held -= 1
            finished.append(event.image)
    assert sorted(finished) == list(range(200))


def test_memory_bounds_the_pool(monkeypatch):
    monkeypatch.setattr(engine, "POOL_BYTES", 1)
    attack = Scripted(sites=(1,), values=(1.0,), lives=(2, 3))
    outcomes = outcomes_of(run(attack, Threat.of(2), count=100))
    assert [outcome.image for outcome in outcomes] == list(range(100))


def test_what_fetch_hands_out_is_not_written_to(monkeypatch):
    """Slices of a dataset are views: refilling a slot must not reach through to them."""
    monkeypatch.setattr(engine, "POOL_CALLS", 1)
    attack = Scripted(sites=(1,), values=(0.0,), lives=(1, 2))
    images, labels = torch.rand(40, 1, 4, 5), (torch.arange(40) >= 16).long()
    before = images.clone(), labels.clone()
    run(attack, Threat.of(1), images=images, labels=labels)
    assert torch.equal(images, before[0])
    assert torch.equal(labels, before[1])


def test_nothing_to_attack():
    attack = Scripted(sites=(1,), values=(1.0,), lives=(1,))
    assert run(attack, Threat.of(1), images=torch.zeros(0, 1, 4, 5)) == []
