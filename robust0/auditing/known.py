"""The best a run knows: a hit counts at every budget it fits, wherever it was found."""

from collections.abc import Iterable, Mapping

from robust0.records import CLEAN, Amount, Verdict, configured

Hits = Mapping[str, Mapping[int, Verdict]]  # by attack and image


def hits_within(verdicts: Iterable[Verdict], budget: Amount) -> Hits:
    """Of each attack, and on each image that falls to it, the hit that needs least."""
    found: dict[str, dict[int, Verdict]] = {}
    for verdict in verdicts:
        if verdict.attack == CLEAN or not verdict.fooled or verdict.needed > budget:
            continue
        own = found.setdefault(configured(verdict.attack), {})
        held = own.get(verdict.image)
        if held is None or verdict.needed < held.needed:
            own[verdict.image] = verdict
    return found


def fallen(hits: Hits, attacks: Iterable[str]) -> set[int]:
    """The images that fall to any of these attacks."""
    return {image for attack in attacks for image in hits.get(attack, ())}
