"""Files of schema 1, as earlier versions wrote them, in the words of schema 2.

Schema 2 speaks of distance and budget where schema 1 spoke of sites, so that it holds for any
threat. Each function takes a parsed document and returns one of schema 2; newer ones come back
unchanged.
"""

from collections.abc import Mapping
from typing import Any

SCHEMA = 2
_VERDICT = {"sites": "distance", "pruned": "needed"}
_ROW = {"median_sites": "median_distance"}
_SETTINGS = {"compute_rows": "batch_size"}
_BUDGET = {"sites": "amount"}


def verdict(record: Any) -> Any:  # noqa: ANN401 - a parsed document
    """A line of verdicts.jsonl; it carries no number, its keys tell."""
    return _renamed(record, _VERDICT)


def report(document: Any) -> Any:  # noqa: ANN401
    """report.json."""
    if not _is_first(document):
        return document
    results = document.get("results")
    if isinstance(results, Mapping):
        budgets = [
            {**entry, "attacks": [_renamed(row, _ROW) for row in _list(entry.get("attacks"))]}
            if isinstance(entry, Mapping)
            else entry
            for entry in _list(results.get("budgets"))
        ]
        settings = _renamed(results.get("settings"), _SETTINGS)
        results = {**results, "settings": settings, "budgets": budgets}
    return {**document, "schema": SCHEMA, "results": results}


def baseline(document: Any) -> Any:  # noqa: ANN401
    """baseline.json, or the stored verdicts of a card."""
    if not _is_first(document):
        return document
    attempts = [_renamed(item, {"sites": "places"}) for item in _list(document.get("attempts"))]
    settings = _renamed(document.get("settings"), _SETTINGS)
    return {**document, "schema": SCHEMA, "settings": settings, "attempts": attempts}


def run_file(document: Any) -> Any:  # noqa: ANN401
    """run.json."""
    if not isinstance(document, Mapping) or document.get("schema_version") != 1:
        return document
    facts = document.get("facts")
    if isinstance(facts, Mapping):
        facts = {**facts, "settings": _renamed(facts.get("settings"), _SETTINGS)}
    return {**document, "schema_version": SCHEMA, "facts": facts}


def card(document: Any) -> Any:  # noqa: ANN401
    """The card of a zoo."""
    return {**budgets(document), "schema": SCHEMA} if _is_first(document) else document


def budgets(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A card or the metadata of a checkpoint, with its two budgets."""
    keys = ("train_budget", "eval_budget")
    return dict(facts) | {key: _renamed(facts[key], _BUDGET) for key in keys if key in facts}


def _is_first(document: object) -> bool:
    return (
        isinstance(document, Mapping)
        and type(document.get("schema")) is int
        and (document["schema"] == 1)
    )


def _renamed(record: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401
    if not isinstance(record, Mapping):
        return record
    return {names.get(key, key): value for key, value in record.items()}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
