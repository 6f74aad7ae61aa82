"""An audit that goes on until it has converged: rounds of doubling budgets on the survivors.

The first round runs every attack as a cascade. Each later one doubles the budgets: of the attacks
in ``FIRST``, and of the other attack that found most per pass so far. The last round is one that
broke fewer images than tolerated, or the last that a limit of passes per image allows. What a round
holds follows from the verdicts of earlier ones, so that any number of processes and resumptions do
the same. A limit of time, of one process, begins no round that would likely end later; the run
remembers that. A doubled search starts afresh, with draws of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from robust0.auditing.facts import Facts
from robust0.auditing.plan import AuditPlan, Book, Stage
from robust0.records import CLEAN, CONVERGED, Amount, configured, in_round, round_of

FIRST = ("guided-swap", "sparse-rs")


def plan_of(facts: Facts) -> AuditPlan:
    """The order of work that a run's facts describe."""
    settings, names = facts.settings, [attack.name for attack in facts.attacks]
    cascade = settings.mode == "cascade"
    if settings.effort != CONVERGED:
        return AuditPlan(settings.budgets, tuple(names), cascade, facts.thorough)
    return RoundsPlan(
        settings.budgets,
        tuple(sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))),
        cascade,
        facts.thorough,
        passes={attack.name: attack.passes for attack in facts.attacks},
        images=facts.subject.images,
        tolerance=Fraction(str(settings.tolerance)),
        limit=settings.max_passes or 0,
    )


@dataclass(frozen=True, slots=True)
class RoundsPlan(AuditPlan):
    """A cascade in rounds; the stages of an attack are called ``guided-swap#3`` and the like."""

    passes: Mapping[str, Mapping[Amount, int]]  # of the first round, by attack and budget
    images: int  # of the run
    tolerance: Fraction  # of all images
    limit: int  # of passes per image

    @property
    def first(self) -> tuple[str, ...]:
        """Attacks that every round begins with."""
        return tuple(name for name in FIRST if name in self.attacks)

    @property
    def others(self) -> tuple[str, ...]:
        """The other attacks, in the order of the run."""
        return tuple(name for name in self.attacks if name not in FIRST)

    def last(self, budget: Amount) -> int:
        """The last round that can fit the limit: if the cheapest of the others is doubled."""
        return self._rounds(budget, self._by_cost(budget)[:1])

    def _rounds(self, budget: Amount, others: Sequence[str]) -> int:
        number, doubled = 1, (*self.first, *others)
        spent = self.cost(budget, 1, self.attacks)
        while (spent := spent + self.cost(budget, number + 1, doubled)) <= self.limit:
            number += 1
        return number

    def cost(self, budget: Amount, number: int, attacks: Sequence[str]) -> int:
        """The most passes that an image can cost these attacks in a round."""
        return sum(self.passes[name][budget] for name in attacks) << (number - 1)

    def _by_cost(self, budget: Amount) -> list[str]:
        return sorted(self.others, key=lambda name: self.passes[name][budget])

    def tells(self, members: Sequence[str]) -> bool:
        """Only all attacks together: each has met what the others left."""
        return set(members) == set(self.attacks)

    def stages(self) -> Iterator[Stage]:
        """Every attack of every round that may come, in order."""
        for budget in self.budgets:
            for number in range(1, self.last(budget) + 1):
                for attack in (*self.first, *self.others):
                    yield budget, in_round(attack, number)

    def costliest(self) -> Iterator[Stage]:
        """All rounds up to the limit, each with the other attack that costs most."""
        for budget, name in self.stages():
            dearest = self._by_cost(budget)[-1:]
            later = configured(name) in (*self.first, *dearest)
            if round_of(name) == 1 or (later and round_of(name) <= self._rounds(budget, dearest)):
                yield budget, name

    def scheduled(self, budget: Amount, number: int, book: Book) -> tuple[str, ...]:
        """The attacks of a round in order, once all verdicts of the rounds before are there."""
        order = (*self.first, *self.others)
        if number > 1 and book.timed_out and not self._begun(budget, number, book):
            return ()
        spent = self.cost(budget, 1, order)
        for earlier in range(1, number):
            little = self.broke(budget, earlier, book) < self.tolerance * self.images
            if little and earlier > 1:
                return ()
            found = {name: self._found(budget, name, earlier, book) for name in self.others}
            order = (*self.first, *sorted(self.others, key=lambda name: -found[name])[:1])
            spent += self.cost(budget, earlier + 1, order)
            if spent > self.limit:
                return ()
        return order

    def broke(self, budget: Amount, number: int, book: Book) -> int:
        """How many images a round broke."""
        stages = ((budget, in_round(name, number)) for name in self.attacks)
        return sum(len(book.needed.get(stage, ())) for stage in stages)

    def _found(self, budget: Amount, name: str, until: int, book: Book) -> Fraction:
        """Images broken per pass up to a round."""
        stages = [(budget, in_round(name, number)) for number in range(1, until + 1)]
        hits = sum(len(book.needed.get(stage, ())) for stage in stages)
        return Fraction(hits, max(1, sum(book.spent.get(stage, 0) for stage in stages)))

    def _begun(self, budget: Amount, number: int, book: Book) -> bool:
        return any((budget, in_round(name, number)) in book.spent for name in self.attacks)

    def share_ahead(self, stage: Stage, images: Sequence[int], book: Book) -> float | None:
        """What a round costs at most, in all that was spent before; None if it is none to begin."""
        budget, name = stage
        number = round_of(name)
        order = self.scheduled(budget, number, book)
        if number == 1 or not order or self._begun(budget, number, book):
            return None
        survivors = len(self.wanted((budget, in_round(order[0], number)), images, book))
        return survivors * self.cost(budget, number, order) / max(1, sum(book.spent.values()))

    def stage_name(self, attack: str, number: int) -> str:
        """Every round is in the name, the first too."""
        return in_round(attack, number)

    def includes(self, stage: Stage, book: Book) -> bool:
        """Whether the round holds this attack."""
        budget, name = stage
        return configured(name) in self.scheduled(budget, round_of(name), book)

    def wanted(self, stage: Stage, images: Sequence[int], book: Book) -> list[int]:
        """The survivors of all earlier stages."""
        budget, name = stage
        attack, number = configured(name), round_of(name)
        order = self.scheduled(budget, number, book)
        if attack not in order:
            return []
        place = self.budgets.index(budget)
        chosen = [image for image in images if image in book.correct]
        if place and not self.thorough:
            larger = book.fallen.get(self.budgets[place - 1], set())
            chosen = [image for image in chosen if image in larger]
        before = [in_round(a, n) for n in range(1, number) for a in self.attacks]
        before += [in_round(a, number) for a in order[: order.index(attack)]]
        gone = self.fitting(budget, book)
        for earlier in before:
            gone.update(book.needed.get((budget, earlier), ()))
        return [image for image in chosen if image not in gone]

    def fitting(self, budget: Amount, book: Book) -> set[int]:
        """Images that fall within a budget to a hit found at a larger one."""
        return {
            image
            for (at, _), least in book.needed.items()
            if at > budget
            for image, needed in least.items()
            if needed <= budget
        }

    def ready(self, stage: Stage, images: Sequence[int], book: Book) -> bool:
        """Whether the verdicts that decide about a stage are there, for all images of the run."""
        budget, name = stage
        if round_of(name) == 1:
            return True
        place = self.budgets.index(budget)
        return (
            self._clean(images, book)
            and all(self._through(larger, None, images, book) for larger in self.budgets[:place])
            and self._through(budget, round_of(name) - 1, images, book)
        )

    def complete(self, images: Sequence[int], book: Book) -> bool:
        """Whether nothing is left to do for all images of the run."""
        return self._clean(images, book) and all(
            self._through(budget, None, images, book) for budget in self.budgets
        )

    def bound(self, stage: Stage, images: Sequence[int], book: Book) -> list[int]:
        """The present survivors, if the attack may be in that round."""
        budget, name = stage
        if round_of(name) > 1 and configured(name) not in (
            *self.first,
            *self._by_cost(budget)[-1:],
        ):
            return []
        fallen = book.fallen.get(budget, set())
        return [image for image in images if image in book.correct and image not in fallen]

    def _clean(self, images: Sequence[int], book: Book) -> bool:
        return all((0, CLEAN, image) in book.verdicts for image in images)

    def _through(
        self, budget: Amount, until: int | None, images: Sequence[int], book: Book
    ) -> bool:
        """Whether no image lacks a verdict of these rounds; None: of all there will be."""
        for number in range(1, (until or self.last(budget)) + 1):
            for attack in self.scheduled(budget, number, book):
                if self.due((budget, in_round(attack, number)), images, book):
                    return False
        return True
