"""certified <= true <= under attack: a certificate beside an audit of the same classifier."""

from collections.abc import Sequence

from robust0.auditing.facts import RunFile
from robust0.auditing.interval import accuracy
from robust0.auditing.rundata import RunData
from robust0.certifying.facts import CertifyFacts
from robust0.errors import RunError
from robust0.proofs import Bracket, BracketRow, Proof
from robust0.records import CLEAN, Accuracy, Results, Subject
from robust0.units import plural


def check_matching(facts: CertifyFacts, model: str, audit: RunFile, where: str) -> None:
    """Refuse an audit of another classifier, other images or another threat, naming what differs.

    Args:
        facts: of the certificate.
        model: what tells the certified weights, views and rule from others.
        audit: what the audit says of itself.
        where: its folder.
    """
    mine, other = facts.subject, audit.facts.subject
    if facts.settings.kind == "ablation":
        raise RunError(
            "an ablation certificate has no bracket: it speaks of the smoothed classifier, and an "
            "audit can only ask a classifier that draws some samples",
            "leave out --audit and --attack",
        )
    if (audit.identity.get("model"), other.arch) != (model, mine.arch):
        raise RunError(
            f"the audit in {where} is of another classifier: {_named(other)}, not {_named(mine)}; "
            "a proof about one says nothing about the other",
            "audit the model that you certify: same weights, same views, same rule",
        )
    unit = audit.facts.settings.unit
    if unit != "pixel":
        raise RunError(
            f"the audit in {where} counts {plural(unit)}, a certificate pixels",
            "audit it with --unit pixel",
        )
    if (mine.data_fingerprint, mine.image_ids) != (other.data_fingerprint, other.image_ids):
        raise RunError(
            f"the audit in {where} is of other images: {other.images:,} of {other.dataset} "
            f"{other.split}, not {mine.images:,} of {mine.dataset} {mine.split}"
            + (" (they differ in content)" if other.images == mine.images else ""),
            f"certify its images: --data {other.dataset} --images {other.images}",
        )


def bracket_of(facts: CertifyFacts, proofs: Sequence[Proof], run: RunData) -> Bracket:
    """The bounds at every number of pixels that either side speaks of."""
    name, results = facts.settings.headline, run.report.results
    last = max(*facts.settings.pixels, *results.settings.budgets)
    rows = tuple(
        BracketRow(
            pixels=pixels,
            certified=accuracy(
                sum(proof.answers[name].certified(proof.label, pixels) for proof in proofs),
                len(proofs),
            ),
            attacked=_under_attack(results, pixels),
        )
        for pixels in range(int(last) + 1)
    )
    said = {image: v.prediction for (_, a, image), v in run.verdicts.items() if a == CLEAN}
    return Bracket(
        classifier=name,
        attacks=tuple(row.name for row in results.budgets[0].attacks),
        effort=results.settings.effort,
        mode=results.settings.mode,
        seed=results.settings.seed,
        rows=rows,
        differing=sum(said[proof.image] != proof.answers[name].label for proof in proofs),
        broken=broken(name, proofs, run),
    )


def broken(name: str, proofs: Sequence[Proof], run: RunData) -> tuple[int, ...]:
    """Images whose certificate a hit of the audit refutes."""
    answers = {proof.image: (proof.label, proof.answers[name]) for proof in proofs}
    found = set()
    for (_, attack, image), verdict in run.verdicts.items():
        label, answer = answers[image]
        if attack != CLEAN and verdict.fooled and answer.certified(label, int(verdict.needed)):
            found.add(image)
    return tuple(sorted(found))


def _under_attack(results: Results, pixels: int) -> Accuracy:
    """What all hits that need no more pixels leave standing: an upper bound at this many."""
    return max(
        (point for point in results.curve if point.budget <= pixels), key=lambda p: p.budget
    ).robust


def _named(subject: Subject) -> str:
    digest = f" (sha256 {subject.sha256[:12]}...)" if subject.sha256 else ""
    return f"{subject.model}, {subject.arch}{digest}"
