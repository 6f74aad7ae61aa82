"""Everything an audit needs, as one frozen object; built by robust0.commands.build_audit."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robust0.attacks.base import Attack
from robust0.attacks.battery import doubled
from robust0.auditing.facts import Facts, Scalar
from robust0.auditing.plan import AuditPlan, Stage
from robust0.auditing.rounds import plan_of
from robust0.data.imageset import ImageSet
from robust0.models.fast.oracle import Oracle
from robust0.records import Amount, configured, round_of
from robust0.threats import Threat


@dataclass(frozen=True, slots=True)
class AuditJob:
    """An audit; ``identity`` is what a resumed run must have in common with the first."""

    title: str
    folder: Path | None  # None: nothing is written
    network: nn.Module  # normalisation inside, on the device
    oracle: Oracle  # the door to the network, for use inside ``frozen``; compiled once, if at all
    data: ImageSet  # the images to attack, on the device
    attacks: tuple[tuple[str, Attack[Any]], ...]  # (configured name, attack), in order
    device: torch.device
    threads: int  # of one model call; part of the identity
    facts: Facts
    identity: dict[str, Scalar]
    write_reports: Callable[[Path], object]  # what people read of a finished run
    about: tuple[tuple[str, str], ...] = ()  # what the user should see before it starts
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def plan(self) -> AuditPlan:
        """The order of work."""
        return plan_of(self.facts)

    @property
    def seed(self) -> int:
        """Of the attacks' draws."""
        return self.facts.settings.seed

    def attack(self, name: str) -> Attack[Any]:
        """The attack of a stage; later rounds of a converged audit have twice the budget each."""
        return doubled(dict(self.attacks)[configured(name)], round_of(name) - 1)

    @property
    def passes(self) -> dict[Stage, int]:
        """The most that an image can cost each stage."""
        known = {attack.name: attack.passes for attack in self.facts.attacks}
        return {
            (budget, name): known[configured(name)][budget] * 2 ** (round_of(name) - 1)
            for budget, name in self.plan.stages()
        }

    def threat(self, budget: Amount) -> Threat:
        """This many sites, in the unit of the run."""
        return Threat.of(budget, self.facts.settings.unit)
