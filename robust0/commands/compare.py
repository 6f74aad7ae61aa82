"""From the arguments of ``robust0 compare`` to a comparison: reads runs, baselines and cards."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from robust0.commands.compare_sources import ZooSide, audited_card, find_side, proved_card
from robust0.comparing.audits import compare_audits
from robust0.comparing.proofs import compare_proofs
from robust0.comparing.same import require_same_images
from robust0.comparing.sides import AuditSide, CertificateSide, Side
from robust0.comparison import LETTERS, ComparisonResults
from robust0.errors import DataError, RunError
from robust0.events import Transfer
from robust0.wording import tidy

Progress = Callable[[Transfer], None]


@dataclass(frozen=True)
class Compared:
    """The comparison, and the sides it was made of: pages show their images."""

    results: ComparisonResults
    sides: tuple[Side, ...]


def compare_sources(sources: Sequence[str | Side], progress: Progress) -> Compared:
    """Compare what these words mean; what does not compare is refused."""
    if len(sources) < 2:
        raise RunError("there is nothing to compare it with", "name two or more")
    if len(sources) > len(LETTERS):
        raise RunError(f"{len(sources)} are too many to compare", f"at most {len(LETTERS)}")
    found = [find_side(source) if isinstance(source, str) else source for source in sources]
    audits = [side.source for side in found if isinstance(side, AuditSide)]
    proofs = [side.source for side in found if isinstance(side, CertificateSide)]
    if audits and proofs:
        raise RunError(
            f"{tidy(audits[0])} is an audit, {tidy(proofs[0])} a certificate: an upper and a lower "
            "bound do not compare",
            "robust0 certify MODEL --audit RUN shows both of one classifier",
        )
    cards = [side for side in found if isinstance(side, ZooSide)]
    if proofs or (not audits and all(card.certified for card in cards)):
        proved = [
            side if isinstance(side, CertificateSide) else proved_card(_card(side), progress)
            for side in found
        ]
        require_same_images(proved, _held_by_data)
        return Compared(compare_proofs(proved), tuple(proved))
    audited = [
        side if isinstance(side, AuditSide) else audited_card(_card(side), progress)
        for side in found
    ]
    require_same_images(audited, _held_by_data)
    return Compared(compare_audits(audited), tuple(audited))


def _card(side: Side | ZooSide) -> ZooSide:
    if not isinstance(side, ZooSide):
        raise TypeError(side)
    return side


def _held_by_data(one: Side, other: Side) -> bool:
    """Whether a dataset on this machine holds the images of both, pixel by pixel."""
    from robust0.data.datasets import in_cache
    from robust0.runs.images import EMBEDDED, open_audited

    names = {one.baseline.subject.dataset, other.baseline.subject.dataset}
    # The embedded sample are the first images of CIFAR-10's test set, under the same ids.
    candidates = [EMBEDDED, "cifar10"] if names <= {EMBEDDED, "cifar10"} else sorted(names)
    for name in candidates:
        if not in_cache(name):
            continue
        try:
            for side in (one, other):
                base = side.baseline
                open_audited(name, base.ids, base.subject.data_fingerprint, None, lambda _: None)
        except DataError:
            continue
        return True
    return False
