"""Checks that an attack of your own keeps the promises of every attack of robust0.

``check_attack(MyAttack)`` runs it on a small network and raises AssertionError with the promise
that it broke. Call it from a test of your own.
"""

from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, fields
from typing import Any

import torch
from torch import Tensor, nn

from robust0.attacks.base import Attack, Rows, State
from robust0.attacks.engine import Outcome, Waiting, search
from robust0.models.fast.oracle import Oracle, frozen
from robust0.rng import Stream, seeded
from robust0.threats import Threat

SHAPE = (3, 6, 4)
IMAGES = 12
ROWS = 16  # of a model call
_CPU = torch.device("cpu")


def check_attack(attack: type[Attack[Any]], **settings: Any) -> None:  # noqa: ANN401 - its own
    """Run the contract on an attack; ``settings`` make it quick enough for a test."""
    made = attack(**settings)
    _settings_are_frozen(made)
    problem = _Problem.make()
    asked = [(3, "pixel"), (5, "feature"), (1, "pixel"), (2, "row"), (1, "patch:2")]
    for budget, unit in asked:
        if made.units is not None and unit.partition(":")[0] not in made.units:
            continue
        threat = Threat.of(budget, unit)
        outcomes = problem.attack(made, threat)
        _stays_within(made, problem, threat, outcomes)
        _same_in_any_company(made, problem, threat, outcomes)
        _asking_changes_nothing(made, problem, threat)
        _state_is_its_own(made, problem, threat)


class _Problem:
    """A small network, and images with its own predictions as labels."""

    def __init__(self, model: nn.Module, images: Tensor) -> None:
        with frozen(model), torch.no_grad():
            logits = model(images)
        self.model, self.images, self.classes = model, images, logits.shape[1]
        self.labels, self.ids = logits.argmax(dim=1), torch.arange(len(images))

    @classmethod
    def make(cls) -> "_Problem":
        with seeded("check attack"):
            model = nn.Sequential(
                nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(),
                nn.Conv2d(6, 6, 3, stride=2, padding=1), nn.ReLU(),
                nn.AdaptiveAvgPool2d(2), nn.Dropout(0.5), nn.Flatten(), nn.Linear(24, 4),
            )  # fmt: skip
            return cls(model, torch.rand(IMAGES, *SHAPE))

    def attack(
        self, attack: Attack[Any], threat: Threat, order: Sequence[int] = range(IMAGES)
    ) -> list[Outcome]:
        """What the attack makes of these images, in the order of their ids."""

        def fetch(positions: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
            index = torch.tensor(positions)
            return self.images[index].clone(), self.labels[index].clone(), self.ids[index].clone()

        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        generator = torch.get_rng_state()
        with frozen(self.model):
            oracle = Oracle(self.model, ROWS, _CPU)
            events = list(search(attack, attack.kind, oracle, Waiting(order, fetch), threat, 0))
        _promise(torch.equal(torch.get_rng_state(), generator), "leaves torch's generator alone")
        after = self.model.state_dict()
        kept = all(torch.equal(value, after[name]) for name, value in before.items())
        _promise(kept, "leaves the network as it was")
        found = [event for event in events if isinstance(event, Outcome)]
        return sorted(found, key=lambda outcome: outcome.image)

    def rows(self, threat: Threat) -> Rows:
        stream = Stream.of("check attack")
        return Rows(self.images, self.labels, self.ids, threat, stream, self.classes)


def _promise(kept: bool, promise: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not kept:
        raise AssertionError(f"broken promise: an attack {promise}")


def _settings_are_frozen(attack: Attack[Any]) -> None:
    names = [field.name for field in fields(attack)]  # type: ignore[arg-type] # a dataclass
    for name in names:
        try:
            setattr(attack, name, getattr(attack, name))
        except (FrozenInstanceError, AttributeError):
            continue
        _promise(kept=False, promise="has frozen settings: use @dataclass(frozen=True)")


def _stays_within(
    attack: Attack[Any], problem: _Problem, threat: Threat, outcomes: Sequence[Outcome]
) -> None:
    _promise(len(outcomes) == IMAGES, "ends for every image")
    passes = attack.passes(threat, SHAPE, problem.classes)
    for outcome in outcomes:
        said = f"stays within the threat ({outcome.violation} at {threat})"
        _promise(outcome.violation == "", said)
        used = outcome.forwards + outcome.backwards
        _promise(used <= passes, f"costs at most what it declares ({used} of {passes} passes)")
        asked = outcome.backwards == 0 or not attack.black_box
        _promise(asked, "asks for no gradient if it calls itself a black box")


def _same_in_any_company(
    attack: Attack[Any], problem: _Problem, threat: Threat, outcomes: Sequence[Outcome]
) -> None:
    reference = [_signature(outcome) for outcome in outcomes]
    again = [_signature(outcome) for outcome in problem.attack(attack, threat)]
    _promise(again == reference, "gives the same result for the same seed")
    turned = problem.attack(attack, threat, range(IMAGES - 1, -1, -1))
    same = [_signature(outcome) for outcome in turned] == reference
    _promise(same, "treats an image alike in any order")
    (alone,) = problem.attack(attack, threat, [5])
    _promise(_signature(alone) == reference[5], "treats an image alike in any company")


def _signature(outcome: Outcome) -> tuple[object, ...]:
    return (
        outcome.image, outcome.fooled, outcome.prediction, outcome.margin, outcome.forwards,
        outcome.backwards,
    )  # fmt: skip


def _asking_changes_nothing(attack: Attack[Any], problem: _Problem, threat: Threat) -> None:
    state = attack.start(problem.rows(threat))
    before = {name: value.clone() for name, value in _tensors(state).items()}
    first, second = attack.ask(state), attack.ask(state)
    _promise(torch.equal(first, second), "asks the same until it is told an answer")
    kept = all(torch.equal(value, before[name]) for name, value in _tensors(state).items())
    _promise(kept, "changes its state in tell, never in ask")


def _state_is_its_own(attack: Attack[Any], problem: _Problem, threat: Threat) -> None:
    rows = problem.rows(threat)
    tensors = _tensors(attack.start(rows))
    whole = all(len(value) == IMAGES for value in tensors.values())
    _promise(whole, "keeps one row per image in every tensor of its state")
    place: Callable[[Tensor], int] = lambda value: value.untyped_storage().data_ptr()  # noqa: E731
    used = [place(value) for value in tensors.values() if value.numel()]
    used += [place(value) for value in (rows.images, rows.labels, rows.ids)]
    _promise(len(set(used)) == len(used), "shares no memory between tensors of its state")


def _tensors(state: State) -> dict[str, Tensor]:
    values = {field.name: getattr(state, field.name) for field in fields(state)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}
