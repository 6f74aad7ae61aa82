"""``robust0 zoo list``: the models of a zoo, a line each."""

from typing import TYPE_CHECKING

from robust0.cli.options import Form, Zoo
from robust0.units import counted
from robust0.views import output
from robust0.views.output import OutputFormat
from robust0.views.tables import table

if TYPE_CHECKING:
    from robust0.zoo.cards import Card
    from robust0.zoo.scores import RobustScore

_TITLE = "models (accuracy in %; worst case: an upper bound; certified: a lower one, on (images))"
# What a narrow terminal does without, in this order.
_SPARE = ("size", "architecture", "effort", "data", "budget", "method", "certified")


def list_models(zoo: Zoo = None, form: Form = OutputFormat.AUTO) -> None:
    """List the models of a zoo with their measured accuracies in percent."""
    from robust0.zoo.fetch import cards

    found, notes = cards(zoo)
    for text in notes:
        output.warn(text)
    if not found:
        output.note("this zoo has no models")
    rows = [
        {
            "id": card.id,
            "architecture": card.architecture,
            "data": card.dataset,
            "method": card.method,
            "budget": counted(card.eval_budget.amount, card.eval_budget.unit),
            "images": card.audit.images,
            "clean": card.audit.clean.percent,
            "sAA": _percent(card.score("saa")),
            "worst case": _percent(card.score("worst-case")),
            "certified": _certified(card),
            "effort": card.audit.effort,
            "size": f"{card.size / 1e6:.1f} MB",
        }
        for card in found
    ]
    if found or form is OutputFormat.JSON:
        table(_TITLE, rows, form, spare=_SPARE)


def _percent(score: "RobustScore | None") -> float | None:
    return None if score is None else score.percent


def _certified(card: "Card") -> str | None:
    """``45.0 (1000)``: certified at the audit's budget, on so many images; else ``69.5 @2``."""
    proof = card.certificate
    if proof is None:
        return None
    allowed = card.eval_budget.amount if card.eval_budget.unit == "pixel" else 0
    below = [row for row in proof.headline_scores if row.budget <= allowed]
    row = below[-1] if below else proof.headline_scores[0]
    at = "" if row.budget == allowed else f" @{row.budget}"
    return f"{row.percent}{at} ({proof.images})"
