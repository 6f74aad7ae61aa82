"""What each round of a converged audit did: a pure fold over its verdicts."""

from collections.abc import Iterator, Sequence

from robust0.auditing.facts import Facts
from robust0.auditing.interval import accuracy
from robust0.auditing.plan import Book
from robust0.auditing.rounds import RoundsPlan, plan_of
from robust0.records import Amount, Flag, RoundRow, Verdict, in_round


def round_rows(facts: Facts, verdicts: Sequence[Verdict]) -> tuple[RoundRow, ...]:
    """A row for every stage that met an image; none for an audit without rounds."""
    plan = plan_of(facts)
    if not isinstance(plan, RoundsPlan):
        return ()
    book = Book()
    book.add(verdicts)
    by_stage: dict[tuple[Amount, str], list[Verdict]] = {}
    for verdict in verdicts:
        by_stage.setdefault((verdict.budget, verdict.attack), []).append(verdict)
    return tuple(row for budget in plan.budgets for row in _rows(plan, budget, book, by_stage))


def _rows(
    plan: RoundsPlan, budget: Amount, book: Book, by_stage: dict[tuple[Amount, str], list[Verdict]]
) -> Iterator[RoundRow]:
    gone = plan.fitting(budget, book)
    for number in range(1, plan.last(budget) + 1):
        for attack in plan.scheduled(budget, number, book):
            met = by_stage.get((budget, in_round(attack, number)), [])
            hits = [verdict for verdict in met if verdict.fooled]
            gone |= {verdict.image for verdict in hits}
            if not met:
                continue
            passes = plan.passes[attack][budget] * 2 ** (number - 1)
            used = [verdict.forwards + verdict.backwards for verdict in hits]
            first, half, third = (sum(4 * u <= part * passes for u in used) for part in (1, 2, 3))
            yield RoundRow(
                budget=budget,
                number=number,
                attack=attack,
                attacked=len(met),
                passes=passes,
                spent=sum(verdict.forwards + verdict.backwards for verdict in met),
                quarters=(first, half, third, len(hits)),
                robust=accuracy(len(book.correct) - len(gone), plan.images),
            )


def last_doubling(rows: Sequence[RoundRow], budget: Amount) -> tuple[int, int]:
    """The number of the last round at a budget, and how many images it broke."""
    own = [row for row in rows if row.budget == budget]
    number = max((row.number for row in own), default=1)
    return number, sum(row.broken for row in own if row.number == number)


def not_converged(facts: Facts, rows: Sequence[RoundRow]) -> Flag | None:
    """The limit of passes came before a doubling that found as little as tolerated."""
    settings, images = facts.settings, facts.subject.images
    if settings.tolerance is None:
        return None
    open_ = []
    for budget in settings.budgets:
        number, broken = last_doubling(rows, budget)
        standing = [row.robust.count for row in rows if row.budget == budget]
        if (number == 1 or broken >= settings.tolerance * images) and standing and standing[-1]:
            open_.append(f"{broken} of {images:,} images in round {number} at {budget}")
    if not open_:
        return None
    return Flag(
        name="not-converged",
        fatal=False,
        message=f"the limit of {settings.max_passes:,} passes per image ended the search while it "
        f"still broke {', '.join(open_)}; a higher --max-passes would lower the accuracy further",
    )
