"""What ``robust0 zoo`` says of the certificate of a card, and how it proves it again."""

from pathlib import Path
from typing import TYPE_CHECKING

from robust0.views import output

if TYPE_CHECKING:
    from robust0.gate.claims import Comparison
    from robust0.zoo.cards import Card
    from robust0.zoo.fetch import Found


def certified_facts(card: "Card") -> dict[str, object]:
    """The certificate of a card as people read it."""
    known = card.certificate
    if known is None:
        return {}
    facts: dict[str, object] = {
        "certificate": f"{known.kind}, {known.headline}, {known.images:,} images of "
        f"{known.dataset} {known.split}",
        "certificates tried": f"{known.tried} per classifier, effort {known.effort}, none broke",
        "half are certified at": "-" if known.median is None else f"{known.median} pixels",
    }
    if known.expected_false is not None:
        facts["false certificates"] = f"{known.expected_false:g} on average, at most"
    return facts | {
        f"{row.name} certified at {row.budget}": f"≥ {row.percent} % ({row.low} - {row.high})"
        for row in known.certified
    }


def certified_again(
    found: "Found", weights: Path, *, full: bool, device: str, data_dir: Path | None
) -> "Comparison | list[str] | None":
    """A second certificate against the card's, or where its papers disagree; None: no claim."""
    from robust0.gate.certified import CertificateBaseline
    from robust0.gate.certified_claims import certificate_papers, compare_certificates
    from robust0.zoo.documents import read_json
    from robust0.zoo.fetch import attachment, drive

    claim = found.card.certificate
    if claim is None:
        return None
    with output.transfer_bars() as show:
        path = drive(attachment(found, "radii"), show)
    stored = read_json(path, CertificateBaseline, lambda document: document)  # one form so far
    problems = certificate_papers(found.card, claim, stored)
    if problems:
        return problems
    output.loading("zoo verify")
    from robust0.commands.zoo_certificate import open_proof, prove_again
    from robust0.device import resolve_device

    with output.transfer_bars() as show:
        job = open_proof(
            found.card, stored, weights, full=full, device=resolve_device(device),
            data_dir=data_dir, progress=show,
        )  # fmt: skip
    result = compare_certificates(stored, prove_again(job))
    same = result.verdicts - result.differing
    output.note(f"{same:,} of {result.verdicts:,} certified radii are the same")
    return result
