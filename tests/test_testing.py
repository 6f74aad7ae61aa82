"""The contract helper for users' attacks, and a user's attack from its file to a report."""

import json
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from robust0.attacks import ATTACKS
from robust0.attacks.base import Attack
from robust0.attacks.battery import budget_of
from robust0.cli.app import run
from robust0.testing import check_attack

README = Path(__file__).parents[1] / "README.md"


def readme_attack() -> str:
    text = README.read_text(encoding="utf-8")
    start = text.index("<!-- own-attack -->")
    block = text[start : text.index("<!-- end -->", start)]
    return block.split("```python\n")[1].split("```")[0]


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The README's attack as a module of the user's; forgotten afterwards."""
    (tmp_path / "mine.py").write_text(readme_attack())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = dict(ATTACKS.members())
    yield "mine:RandomPaint"
    members = ATTACKS.members()
    for kind in set(members) - set(before):
        del members[kind]
    sys.modules.pop("mine", None)


@pytest.mark.parametrize("kind", ATTACKS.own)
def test_every_attack_keeps_the_contract(kind):
    check_attack(ATTACKS[kind], **budget_of(ATTACKS[kind], "smoke"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Honest(Attack):
    """Paints the first sites black."""

    kind: ClassVar[str] = "honest"
    black_box: ClassVar[bool] = True

    def passes(self, threat, image_shape, classes):
        return 3

    def ask(self, state):
        painted = state.clean.clone()
        painted[:, :, : state.threat.budget] = 0
        return state.image(painted)

    def tell(self, state, reply):
        state.step = state.step + 1
        return state.step >= 3


class Greedy(Honest):
    def ask(self, state):
        return state.image(torch.zeros_like(state.clean))


class Costly(Honest):
    def passes(self, threat, image_shape, classes):
        return 2


class Forgetful(Honest):
    def ask(self, state):
        state.step = state.step + 1
        return super().ask(state)


class Sociable(Honest):
    """Counts its company's rows: alone it paints nothing."""

    def ask(self, state):
        return super().ask(state) if len(state.ids) > 1 else state.image(state.clean.clone())


class Shared(Honest):
    def start(self, rows):
        state = super().start(rows)
        state.labels = rows.labels
        return state


class Dicing(Honest):
    def ask(self, state):
        torch.rand(1)
        return super().ask(state)


@dataclass(kw_only=True)
class Loose(Attack):
    """Settings that can be changed."""

    kind: ClassVar[str] = "loose"
    tries: int = 3
    passes, ask, tell = Honest.passes, Honest.ask, Honest.tell


def test_an_honest_attack_passes():
    check_attack(Honest)


@pytest.mark.parametrize(
    ("attack", "promise"),
    [
        (Greedy, "within the threat"),
        (Costly, "costs at most what it declares"),
        (Forgetful, "ask"),
        (Shared, "shares no memory"),
        (Dicing, "generator"),
        (Loose, "frozen settings"),
        (Sociable, "any company"),
    ],
)
def test_a_broken_promise_is_named(attack, promise):
    with pytest.raises(AssertionError, match=promise):
        check_attack(attack)


def test_the_readme_attack_is_short_and_keeps_the_contract(own):
    assert len(readme_attack().splitlines()) <= 25
    check_attack(ATTACKS.find(own))


def test_an_attack_of_the_users_own_is_audited_and_reported(own, capfd):
    model = Path(__file__).parents[1] / "model_zoo" / "cifar10-w8-e4-standard.safetensors"
    words = ["audit", str(model), "--data", "sample", "--images", "16", "--eps", "20"]
    words += ["--attacks", f"{own},sparse-rs", "--effort", "smoke", "-o", "run"]
    assert run(words) == 0, capfd.readouterr().err
    report = json.loads(Path("run/report.json").read_text())
    rows = {row["name"]: row for row in report["results"]["budgets"][0]["attacks"]}
    assert set(rows) == {"random-paint", "sparse-rs"}
    assert "kind: mine:RandomPaint" in Path("run/recipe.yaml").read_text()


def test_names_that_cannot_be_imported(own, capfd):
    words = ["audit", "x.safetensors", "--data", "sample", "--attacks", "mine:Nothing"]
    assert run(words) == 2
    text = textwrap.dedent(capfd.readouterr().err)
    assert "x.safetensors" in text or "mine:Nothing" in text
