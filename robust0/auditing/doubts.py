"""Flags that follow from verdicts: bugs in attacks, signs that stronger ones would find more."""

from collections import Counter
from collections.abc import Sequence

from robust0.attacks import ATTACKS
from robust0.auditing.facts import Facts
from robust0.auditing.known import hits_within
from robust0.records import CLEAN, CONVERGED, Flag, Verdict, configured

POINTS = 0.002  # of all images: 0.2 points, the threshold of AutoAttack's checks
GAP = 0.02  # between the best attack and all together
LATE = 0.9  # of an attack's passes
THIN = 0.25  # of the images that a class would have if all had as many
_MOST_NAMED = 6


def doubts(
    facts: Facts, verdicts: Sequence[Verdict], correct: set[int], images: int
) -> tuple[Flag, ...]:
    """Flags from the verdicts of a run; most look at its largest budget."""
    known = hits_within(verdicts, facts.settings.budgets[0])
    hits = {attack.name: set(known.get(attack.name, ())) for attack in facts.attacks}
    found = [
        _thin_classes(facts, verdicts),
        _violations(verdicts),
        _black_box(facts, verdicts, images),
        _late_hits(facts, verdicts, images),
        _gap(facts, hits, len(correct), images),
        _not_monotone(facts, verdicts, images),
    ]
    return tuple(flag for flag in found if flag is not None)


def _thin_classes(facts: Facts, verdicts: Sequence[Verdict]) -> Flag | None:
    """Classes that the images hardly show: the numbers say little about them."""
    held = Counter(v.label for v in verdicts if v.attack == CLEAN)
    enough = THIN * held.total() / len(facts.class_names)
    named = list(enumerate(facts.class_names))
    missing = [name for label, name in named if not held[label]]
    thin = [name for label, name in named if 0 < held[label] < enough]
    if not held or not (missing or thin):
        return None
    parts = [f"{len(missing)} of {len(named)} classes have no image ({_some(missing)})"] * bool(
        missing
    )
    parts += [f"{len(thin)} have fewer than a quarter of an equal share ({_some(thin)})"] * bool(
        thin
    )
    return Flag(
        name="thin-classes",
        fatal=False,
        message=f"{' and '.join(parts)}: the numbers say little about them",
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join([*names[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def _violations(verdicts: Sequence[Verdict]) -> Flag | None:
    """Attempts that the judge threw out: a bug in the attack, whose numbers mean nothing."""
    broken = Counter((v.attack, v.violation) for v in verdicts if v.violation)
    if not broken:
        return None
    named = (f"{attack} ({count}, {what})" for (attack, what), count in sorted(broken.items()))
    return Flag(
        name="violation",
        fatal=True,
        message=f"{', '.join(named)}: attempts outside the threat model, not counted as hits",
    )


def _black_box(facts: Facts, verdicts: Sequence[Verdict], images: int) -> Flag | None:
    """Attacks without gradients break what gradients could not: they may be misleading.

    In a cascade only images count that a gradient attack met before.
    """
    mixed = {kind for kind, attack in ATTACKS.members().items() if attack.mixed}
    judged = [attack for attack in facts.attacks if attack.kind not in mixed]
    white = {attack.name for attack in judged if not attack.black_box}
    black = [attack.name for attack in judged if attack.black_box]
    own = [v for v in verdicts if v.budget == facts.settings.budgets[0]]
    met = {v.image for v in own if configured(v.attack) in white}
    broken = {v.image for v in own if configured(v.attack) in white and v.fooled}
    left = met - broken
    hits = [v for v in own if configured(v.attack) in black and v.fooled and v.image in left]
    more = {v.image for v in hits}
    if len(more) <= POINTS * images:
        return None
    by = [name for name in black if any(configured(v.attack) == name for v in hits)]
    return Flag(
        name="black-box-beats-white-box",
        fatal=False,
        message=f"{' and '.join(by)} broke {len(more)} of {images} images that no gradient "
        "attack broke: gradients may mislead here (common for l0-trained models)",
    )


def _late_hits(facts: Facts, verdicts: Sequence[Verdict], images: int) -> Flag | None:
    """Hits in the last tenth of the passes: more passes would find more."""
    if facts.settings.effort == CONVERGED:  # its last doubling says it better
        return None
    largest = facts.settings.budgets[0]
    late: list[str] = []
    for attack in facts.attacks:
        own = [v for v in verdicts if v.attack == attack.name and v.budget == largest]
        # Rows do not always spend all they may: a survivor shows what a whole search costs.
        whole = min(
            (v.forwards + v.backwards for v in own if not v.fooled),
            default=attack.passes[largest],
        )
        count = sum(v.fooled and v.forwards + v.backwards > LATE * whole for v in own)
        if count > POINTS * images:
            late.append(f"{attack.name} ({count})")
    if not late:
        return None
    return Flag(
        name="not-converged",
        fatal=False,
        message=f"still breaking images in the last tenth of the passes: {', '.join(late)}; "
        "a higher effort would lower the accuracy further",
    )


def _gap(facts: Facts, hits: dict[str, set[int]], correct: int, images: int) -> Flag | None:
    """The attacks together are far below the best of them: each misses what others find."""
    if facts.settings.mode == "cascade" or len(hits) < 2 or images == 0:
        return None
    best = max(len(broken) for broken in hits.values())
    union = len(set().union(*hits.values()))
    if union - best <= GAP * images:
        return None
    return Flag(
        name="union-below-best",
        fatal=False,
        message=f"together the attacks leave {100 * (correct - union) / images:.1f} %, the best "
        f"alone {100 * (correct - best) / images:.1f} %: none of them has found all there is",
    )


def _not_monotone(facts: Facts, verdicts: Sequence[Verdict], images: int) -> Flag | None:
    """Images that fell at a smaller budget but not at a larger one."""
    if len(facts.settings.budgets) < 2 or not facts.thorough:
        return None
    fallen = {
        budget: {v.image for v in verdicts if v.fooled and v.budget == budget and v.attack != CLEAN}
        for budget in facts.settings.budgets
    }
    count = max(
        len(fallen[small] - fallen[large])
        for place, large in enumerate(facts.settings.budgets)
        for small in facts.settings.budgets[place:]
    )
    if count <= POINTS * images:
        return None
    return Flag(
        name="not-monotone",
        fatal=False,
        message=f"{count} images fell at a smaller budget but not at a larger one: the attacks at "
        "the larger budget have not converged",
    )
