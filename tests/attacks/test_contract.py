"""Every attack of the registry, as the battery configures it, against the same promises."""

from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import robust0.attacks
from robust0.attacks import ATTACKS, engine
from robust0.attacks.base import Reply, State
from robust0.attacks.battery import battery, budget_of
from robust0.attacks.sparse_pgd import SparsePGD
from robust0.attacks.sparse_rs import SparseRS
from robust0.errors import EvaluationError
from robust0.models.fast.oracle import Oracle, frozen
from robust0.threats import Threat
from tests.attacks.conftest import Problem

BATTERY_OF_ATTACKS = {
    name: kind(**budget_of(kind, "smoke"), **named.params)
    for name, (kind, named) in battery().items()
}
each_attack = pytest.mark.parametrize("name", BATTERY_OF_ATTACKS)

PIXELS, FEATURES = Threat.of(4), Threat.of(7, "feature")
COLOUR, GREY = (3, 6, 5), (1, 7, 4)
SITUATIONS = {
    "pixels, colour": (PIXELS, COLOUR),
    "features, colour": (FEATURES, COLOUR),
    "pixels, grey": (PIXELS, GREY),
    "features, grey": (FEATURES, GREY),
    "one pixel": (Threat.of(1), COLOUR),
    "one feature": (Threat.of(1, "feature"), COLOUR),
    "all pixels": (Threat.of(30), COLOUR),
    "all pixels but one": (Threat.of(29), COLOUR),
    "all features": (Threat.of(90, "feature"), COLOUR),
    "all grey": (Threat.of(28), GREY),
    "rows": (Threat.of(2, "row"), COLOUR),
    "columns of many values": (Threat.of(1, "column"), (3, 14, 3)),
    "patches": (Threat.of(2, "patch:2"), (3, 6, 4)),
    "all rows": (Threat.of(6, "row"), COLOUR),
}


def serves(name, situation):
    units = BATTERY_OF_ATTACKS[name].units
    return units is None or SITUATIONS[situation][0].kind in units


SERVED = [(n, s) for n in BATTERY_OF_ATTACKS for s in SITUATIONS if serves(n, s)]


def test_what_no_attack_could_serve_is_no_situation():
    assert {situation for _, situation in SERVED} == set(SITUATIONS)
    structured = {name for name, situation in SERVED if situation == "rows"}
    assert {"guided-swap", "sparse-rs", "sparse-pgd-p", "sparse-pgd-u"} <= structured


def signature(outcome):
    attempt = outcome.attempt
    return (
        outcome.image, outcome.label, outcome.fooled, outcome.prediction, outcome.margin,
        outcome.distance, outcome.forwards, outcome.backwards, outcome.fragile, outcome.violation,
        attempt.places.tolist(), attempt.values.tolist(),
    )  # fmt: skip


def signatures(outcomes):
    return [signature(outcome) for outcome in outcomes]


def test_every_module_is_in_the_registry_under_its_three_names():
    folder = Path(robust0.attacks.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {
        "__init__",
        "base",
        "battery",
        "calls",
        "corner_scan",
        "swap_state",
        "engine",
        "judge",
        "moves",
    }
    homes = {attack.__module__.rpartition(".")[2] for attack in ATTACKS.members().values()}
    assert modules == homes
    for kind, attack in ATTACKS.members().items():
        assert attack.kind == kind
        assert attack.__module__.endswith(kind.replace("-", "_"))
        assert attack.__name__.lower() == kind.replace("-", "")
        assert attack.revision >= 1


def test_every_kind_is_in_the_battery():
    assert {kind.kind for kind, _ in battery().values()} == set(ATTACKS)


@each_attack
def test_settings_are_frozen_and_described(name):
    attack = BATTERY_OF_ATTACKS[name]
    with pytest.raises((FrozenInstanceError, AttributeError)):
        setattr(attack, fields(attack)[0].name, 1)
    assert type(attack).__doc__
    assert all(isinstance(note, str) for note in attack.notes)


@pytest.mark.parametrize(("name", "situation"), SERVED)
def test_images_stay_within_the_threat_and_the_declared_passes(name, situation, small, drive):
    attack, (threat, shape) = BATTERY_OF_ATTACKS[name], SITUATIONS[situation]
    problem = small(count=5, shape=shape)
    outcomes = drive(attack, problem, threat)
    assert [outcome.image for outcome in outcomes] == list(range(5))
    passes = attack.passes(threat, shape, problem.classes)
    for outcome, clean in zip(outcomes, problem.images, strict=True):
        assert outcome.violation == ""
        assert outcome.label == int(problem.labels[outcome.image])
        assert 0 < outcome.forwards <= passes
        assert outcome.forwards + outcome.backwards <= passes
        assert outcome.backwards == 0 or not attack.black_box
        image = torch.from_numpy(outcome.attempt.paint(clean.numpy()))
        assert image.shape == clean.shape
        assert image.dtype == clean.dtype
        assert int(threat.distance(clean[None], image[None])) == outcome.distance <= threat.budget
        assert 0 <= float(image.min()) <= float(image.max()) <= 1
        with frozen(problem.model), torch.no_grad():
            prediction = int(problem.model(image[None]).argmax())
        assert outcome.fragile or (prediction != outcome.label) == outcome.fooled


@each_attack
def test_budgets_are_spent_to_the_last_pass(name, small, drive):
    """A network that cannot be fooled makes every row run to the end of its budget."""
    attack, problem = BATTERY_OF_ATTACKS[name], small(count=3)
    stubborn = problem.first(3)
    with torch.no_grad():
        bias = stubborn.model[-1].bias.clone()
        stubborn.model[-1].bias[:] = torch.tensor([100.0, 0, 0, 0])
        stubborn.labels[:] = 0
    try:
        outcomes = drive(attack, stubborn, PIXELS)
    finally:
        stubborn.model[-1].bias.data.copy_(bias)
    passes = attack.passes(PIXELS, COLOUR, 4)
    for outcome in outcomes:
        assert not outcome.fooled
        assert 0.8 * passes <= outcome.forwards + outcome.backwards <= passes


@each_attack
@pytest.mark.parametrize("threat", [PIXELS, FEATURES], ids=str)
def test_nothing_outside_is_touched(name, threat, small, drive):
    problem = small(count=5, seed=1)
    model = problem.model.train()
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    model[0].weight.requires_grad_(False)
    images, labels = problem.images.clone(), problem.labels.clone()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    drive(BATTERY_OF_ATTACKS[name], problem, threat)
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.equal(problem.images, images)
    assert torch.equal(problem.labels, labels)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(torch.equal(weight.grad, torch.ones_like(weight)) for weight in model.parameters())
    assert all(module.training for module in model.modules())
    assert [weight.requires_grad for weight in model.parameters()] == [False] + [True] * 7


@each_attack
@pytest.mark.parametrize("threat", [PIXELS, FEATURES], ids=str)
def test_a_row_does_not_depend_on_its_company(name, threat, small, drive, monkeypatch):
    attack, problem = BATTERY_OF_ATTACKS[name], small(count=21)
    reference = signatures(drive(attack, problem, threat))
    assert len(reference) == 21
    backwards = drive(attack, problem, threat, order=range(20, -1, -1))
    assert signatures(backwards) == reference
    halves = drive(attack, problem, threat, order=range(0, 21, 2))
    halves += drive(attack, problem, threat, order=range(1, 21, 2))
    assert signatures(sorted(halves, key=lambda outcome: outcome.image)) == reference
    alone = drive(attack, problem, threat, order=[5])
    assert signatures(alone) == [reference[5]]
    assert signatures(drive(attack, problem, threat, lanes=3)) == reference
    monkeypatch.setattr(engine, "POOL_CALLS", 1)
    assert signatures(drive(attack, problem, threat)) == reference


@each_attack
def test_row_counts_agree_on_an_exact_network(name, exact, drive):
    """Sums that are exact leave no room for the shape of a call."""
    attack = BATTERY_OF_ATTACKS[name]
    outcomes = [signatures(drive(attack, exact, PIXELS, rows=rows)) for rows in (16, 23, 64)]
    assert outcomes[0] == outcomes[1] == outcomes[2]
    singly = [drive(attack, exact, PIXELS, order=[image])[0] for image in range(0, 64, 16)]
    assert signatures(singly) == outcomes[0][::16]


@each_attack
def test_the_seed_matters_where_there_is_chance(name, small, drive):
    attack, problem = BATTERY_OF_ATTACKS[name], small(count=12)
    first, again, other = (signatures(drive(attack, problem, PIXELS, seed=s)) for s in (0, 0, 1))
    assert first == again
    assert (first == other) == (attack.kind in {"saif", "sigma-zero"})


@each_attack
def test_asking_changes_nothing(name, small, play):
    attack, problem = BATTERY_OF_ATTACKS[name], small(count=6)
    state = attack.start(problem.rows(PIXELS))
    for _ in range(6):
        before = {field: _tensor(state, field) for field in _tensor_fields(state)}
        assert torch.equal(attack.ask(state), attack.ask(state))
        assert all(torch.equal(_tensor(state, field), before[field]) for field in before)
        play(attack, state, problem.model)


@each_attack
def test_what_was_asked_stays_as_it_was(name, small, play):
    """The engine keeps the image of a query after the state has moved on."""
    attack, problem = BATTERY_OF_ATTACKS[name], small(count=6)
    state = attack.start(problem.rows(PIXELS))
    for _ in range(6):
        asked = attack.ask(state)
        before = asked.clone()
        play(attack, state, problem.model)
        assert torch.equal(asked, before)


@each_attack
def test_state_tensors_are_rows_of_their_own(name, small):
    """The engine indexes and overwrites rows: no two tensors, nor the input, may share memory."""
    attack, problem = BATTERY_OF_ATTACKS[name], small(count=6)
    rows = problem.rows(FEATURES)
    state = attack.start(rows)
    tensors = [getattr(state, field) for field in _tensor_fields(state)]
    assert all(len(tensor) == 6 for tensor in tensors)
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()]
    places += [t.untyped_storage().data_ptr() for t in (rows.images, rows.labels, rows.ids)]
    assert len(set(places)) == len(places)
    taken = state.take(torch.tensor([4, 2]))
    assert torch.equal(attack.ask(taken), attack.ask(state)[[4, 2]])


@pytest.mark.parametrize("name", battery())
def test_a_standard_model_falls(name, trained, drive):
    """With a fifth of the pixels free, every attack at effort quick breaks most images."""
    kind, named = battery()[name]
    attack = kind(**budget_of(kind, "quick"), **named.params)
    outcomes = drive(attack, trained.first(16), Threat.of(24))
    assert sum(outcome.fooled for outcome in outcomes) >= 12


class Scaled(nn.Module):
    """The same classifier, as sure of itself as one likes."""

    def __init__(self, network, factor):
        super().__init__()
        self.network, self.factor = network, factor

    def forward(self, images):
        return self.factor * self.network(images)


@pytest.mark.parametrize("name", battery())
def test_confidence_is_no_defence(name, trained, drive):
    """Margins of 30 and more, where float32's plain cross entropy is zero."""
    kind, named = battery()[name]
    attack = kind(**budget_of(kind, "quick"), **named.params)
    modest, threat = trained.first(16), Threat.of(30)
    sure = replace(modest, model=Scaled(modest.model, 4))
    hits = [sum(o.fooled for o in drive(attack, p, threat)) for p in (modest, sure)]
    assert hits[1] >= hits[0] - 2
    assert hits[0] > 3


@each_attack
def test_an_infinite_slope_is_no_defence(name, trained, drive):
    class Gamma(nn.Module):
        def __init__(self, network, least):
            super().__init__()
            self.network, self.least = network, least

        def forward(self, images):
            return self.network(images.clamp(min=self.least) ** 0.9)

    attack, threat = BATTERY_OF_ATTACKS[name], Threat.of(12)
    given = trained.first(16)
    problems = [replace(given, model=Gamma(given.model, least)) for least in (1e-6, 0.0)]
    finite, infinite = (sum(o.fooled for o in drive(attack, p, threat)) for p in problems)
    assert infinite >= finite - 2


@each_attack
def test_answers_that_are_no_numbers_are_not_robustness(name, drive):
    class Bursting(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(90, 4)

        def forward(self, images):
            logits = self.head(images.flatten(1)) * 0.01 + torch.tensor([1.0, 0, 0, 0])
            changed = ((images == 0) | (images == 1)).flatten(1).any(dim=1)
            return logits.masked_fill(changed[:, None], torch.nan)

    images = torch.full((3, 3, 6, 5), 0.5) + 0.1 * torch.rand(3, 3, 6, 5)
    problem = Problem(Bursting(), images, torch.zeros(3, dtype=torch.int64), 4)
    attack = BATTERY_OF_ATTACKS[name]
    # Minimum-norm attacks wander outside the budget, where answers do not matter.
    threat = Threat.of(30 if attack.leaves_budget else 4)
    with pytest.raises(EvaluationError, match="NaN"):
        drive(attack, problem, threat)


def test_searching_without_a_gradient(small, drive):
    """A network that stops gradients blinds the white box; the black box still finds the way."""
    problem = small(count=20)
    whole = problem.model

    class Masked(torch.nn.Module):
        def forward(self, images):
            return whole(images.detach())

    with torch.no_grad(), frozen(whole):
        assert (
            not Oracle(Masked(), 16, torch.device("cpu"))
            .gradient(problem.images[:2], lambda logits: logits.sum(dim=1))[1]
            .any()
        )
    masked = type(problem)(Masked(), problem.images, problem.labels, problem.classes)
    threat = Threat.of(15)
    with frozen(whole):
        blind = drive(SparsePGD(steps=5), masked, threat)
        seeing = drive(SparseRS(queries=200), masked, threat)
    assert all(outcome.violation == "" for outcome in blind)
    assert sum(o.fooled for o in seeing) > sum(o.fooled for o in blind)
    assert sum(outcome.fooled for outcome in seeing) >= 10


class NoWaiting(TorchDispatchMode):
    """Refuses operations that make the host wait for a device, or copy to it, in a step."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.overloadpacket.__name__
        assert name not in {"_local_scalar_dense", "nonzero", "is_nonzero", "equal", "lift_fresh"}
        if name in {"index", "index_put", "index_put_"}:
            assert not any(i is not None and i.dtype == torch.bool for i in args[1])
        assert name not in {"masked_select", "unique_consecutive", "_unique2"}
        return operation(*args, **(kwargs or {}))


@each_attack
def test_a_step_never_waits_for_the_device(name, small):
    attack, problem = BATTERY_OF_ATTACKS[name], small(count=6)
    state = attack.start(problem.rows(PIXELS))
    with frozen(problem.model):
        for _ in range(8):
            with NoWaiting():
                images = attack.ask(state)
                wants = attack.wants_gradient(state)
            for gradient in (True, False):
                rows = (wants == gradient).nonzero()[:, 0]
                part = state.take(rows)
                logits = problem.model(images[rows]).detach()
                slope = torch.randn_like(part.clean) if gradient else None
                with NoWaiting():
                    attack.objective(part, logits)
                    attack.tell(part, Reply(logits, slope))
                state.put(rows, part)


def _tensor_fields(state: State) -> list[str]:
    return [f.name for f in fields(state) if isinstance(getattr(state, f.name), torch.Tensor)]


def _tensor(state: State, field: str) -> torch.Tensor:
    return getattr(state, field).clone()
