"""Which image meets which attack at which budget: a pure function of the verdicts so far."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from robust0.auditing.attempts import Key
from robust0.records import CLEAN, Amount, Verdict, in_round

Stage = tuple[Amount, str]  # (budget, attack)
T = TypeVar("T")


def evenly(items: Sequence[T], count: int) -> list[T]:
    """This many, evenly spread, in their order; all if there are no more."""
    count = min(count, len(items))
    return [items[place * len(items) // count] for place in range(count)]


@dataclass(slots=True)
class Book:
    """Verdicts by what they are about; adding one twice changes nothing."""

    verdicts: dict[Key, Verdict] = field(default_factory=dict)
    correct: set[int] = field(default_factory=set)  # images classified correctly when clean
    fallen: dict[Amount, set[int]] = field(default_factory=dict)  # by budget, to any attack
    needed: dict[Stage, dict[int, Amount]] = field(default_factory=dict)  # by hits on images
    spent: dict[Stage, int] = field(default_factory=dict)  # passes on all images
    timed_out: bool = False  # the clock ended the audit: no further round begins

    def add(self, verdicts: Iterable[Verdict]) -> list[Verdict]:
        """Take verdicts in; those that were new."""
        fresh = []
        for verdict in verdicts:
            key = (verdict.budget, verdict.attack, verdict.image)
            if key in self.verdicts:
                continue
            self.verdicts[key] = verdict
            fresh.append(verdict)
            if verdict.attack == CLEAN:
                if not verdict.fooled:
                    self.correct.add(verdict.image)
                continue
            stage = key[:2]
            used = verdict.forwards + verdict.backwards
            self.spent[stage] = self.spent.get(stage, 0) + used
            if verdict.fooled:
                self.needed.setdefault(stage, {})[verdict.image] = verdict.needed
                self.fallen.setdefault(verdict.budget, set()).add(verdict.image)
        return fresh

    def knows(self, stage: Stage, image: int) -> bool:
        """Whether this attack at this budget has been decided for an image."""
        return (*stage, image) in self.verdicts


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The order of work. Budgets run from the largest down; attacks as listed.

    ``cascade``: an attack sees what the attacks before it left standing at the same budget. Smaller
    budgets are tried on the images that fell at the next larger one, or on all if ``thorough``.
    """

    budgets: tuple[Amount, ...]  # largest first
    attacks: tuple[str, ...]
    cascade: bool
    thorough: bool

    def tells(self, members: Sequence[str]) -> bool:
        """Whether the union of these attacks follows from the verdicts.

        In a cascade only if no other attack came before them and kept images from them.
        """
        if not set(members) <= set(self.attacks):
            return False
        return not self.cascade or set(self.attacks[: len(members)]) == set(members)

    def stages(self) -> Iterator[Stage]:
        """Every attack at every budget, in order."""
        for budget in self.budgets:
            for attack in self.attacks:
                yield budget, attack

    def stage_name(self, attack: str, number: int) -> str:
        """What an attack is called in a round, where there are rounds."""
        return attack if number == 1 else in_round(attack, number)

    def includes(self, stage: Stage, book: Book) -> bool:  # noqa: ARG002 - rounds look
        """Whether a stage takes place, given the verdicts of all earlier ones."""
        return True

    def ready(
        self,
        stage: Stage,  # noqa: ARG002
        images: Sequence[int],  # noqa: ARG002
        book: Book,  # noqa: ARG002
    ) -> bool:
        """Whether the verdicts on all images of the run that decide about a stage are there."""
        return True

    def costliest(self) -> Iterator[Stage]:
        """All stages that may take place."""
        return self.stages()

    def wanted(self, stage: Stage, images: Sequence[int], book: Book) -> list[int]:
        """The images that meet this attack, given the verdicts of all earlier stages."""
        budget, attack = stage
        chosen = [image for image in images if image in book.correct]
        place = self.budgets.index(budget)
        if place and not self.thorough:
            larger = book.fallen.get(self.budgets[place - 1], set())
            chosen = [image for image in chosen if image in larger]
        if self.cascade:
            before: set[int] = set()
            for earlier in self.attacks[: self.attacks.index(attack)]:
                before.update(book.needed.get((budget, earlier), ()))
            chosen = [image for image in chosen if image not in before]
        return chosen

    def due(self, stage: Stage, images: Sequence[int], book: Book) -> list[int]:
        """The images of ``wanted`` that still lack a verdict."""
        wanted = self.wanted(stage, images, book)
        return [image for image in wanted if not book.knows(stage, image)]

    def bound(self, stage: Stage, images: Sequence[int], book: Book) -> list[int]:
        """The images that may still have to meet this attack, before earlier stages are through."""
        budget = stage[0]
        place = self.budgets.index(budget)
        if place and not self.thorough:
            larger = self.budgets[place - 1]
            if any(self.due((larger, attack), images, book) for attack in self.attacks):
                # Not known yet who falls there: count all.
                return [image for image in images if image in book.correct]
        return self.due(stage, images, book)

    def complete(self, images: Sequence[int], book: Book) -> bool:
        """Whether nothing is left to do for these images."""
        if any((0, CLEAN, image) not in book.verdicts for image in images):
            return False
        return not any(self.due(stage, images, book) for stage in self.stages())

    def ahead(
        self, stage: Stage, images: Sequence[int], book: Book, passes: Mapping[Stage, int]
    ) -> int:
        """The most passes that later stages can cost on these images."""
        stages = list(self.stages())
        later = stages[stages.index(stage) + 1 :]
        return sum(len(self.bound(other, images, book)) * passes[other] for other in later)
