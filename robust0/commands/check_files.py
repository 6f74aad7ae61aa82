"""Faults of recipes, cards and indexes as lines, for editors, hooks and CI; no torch here."""

import hashlib
from pathlib import Path

from robust0 import upgrades
from robust0.architectures import check_architecture
from robust0.commands.early import PUBLISHED
from robust0.data.datasets import parse_name
from robust0.errors import Robust0Error, ZooError
from robust0.recipes.load import load_recipe
from robust0.records import Report
from robust0.zoo.cards import Card, Index, is_id, is_web, read_card
from robust0.zoo.documents import read_json, read_yaml
from robust0.zoo.roots import INDEX


def recipe_faults(path: Path) -> list[str]:
    """What is wrong with a recipe: one line each, with its file, its line and its key."""
    try:
        recipe = load_recipe(f"./{path}" if path.parent == Path() else str(path)).recipe
    except Robust0Error as problem:
        return [_placed(path, fault) for fault in problem.faults]
    found = []
    for key, name, check in (
        ("dataset.name", recipe.dataset.name, parse_name),
        ("model.name", recipe.model.name, check_architecture),
    ):
        if check is check_architecture and name.startswith(PUBLISHED):
            continue
        try:
            check(name)
        except Robust0Error as problem:
            found.append(f"{path}: {key}: {problem.message}")
    return found


def zoo_faults(path: Path) -> list[str]:
    """What is wrong with a card or an index, and with the files that lie beside it."""
    try:
        if path.name == INDEX:
            return _index_faults(path)
        return _card_faults(path, read_card(path, path.stem))
    except Robust0Error as problem:
        return [_placed(path, fault) for fault in problem.faults]


def _card_faults(path: Path, card: Card) -> list[str]:
    """Files that are missing or not those of the card, and numbers that differ from the report."""
    files = [("report", card.report, card.report_sha256)]
    files.append(("verdicts", card.verdicts, card.verdicts_sha256))
    if card.certificate is not None:
        known = card.certificate
        files.append(("certificate.radii", known.radii, known.radii_sha256))
    if not is_web(card.source):
        files.append(("source", card.source, card.sha256))
    found = []
    for key, name, digest in files:
        file = path.parent / name
        if not file.is_file():
            found.append(f"{path}: {key}: there is no {name} beside the card")
        elif _digest(file) != digest:
            found.append(f"{path}: {key}: {name} has another sha256 than the card says")
    if not any(": report:" in fault for fault in found):
        report = read_json(path.parent / card.report, Report, upgrades.report)
        found += [f"{path}: {problem}" for problem in card.problems(report)]
    return found


def _index_faults(path: Path) -> list[str]:
    """Cards that the index does not list, or lists as they were."""
    listed = read_yaml(path, Index).cards
    here = {file.stem: file for file in path.parent.glob("*.yaml") if is_id(file.stem)}
    found = [f"{path}: cards.{name}: there is no such card" for name in listed if name not in here]
    for name, file in sorted(here.items()):
        entry = listed.get(name)
        if entry is None:
            found.append(f"{path}: cards: {file.name} is not listed")
        elif (entry.sha256, entry.size) != (_digest(file), file.stat().st_size):
            found.append(f"{path}: cards.{name}: {file.name} has changed since")
    return found


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as problem:
        raise ZooError(f"cannot read {path}: {problem.strerror or problem}") from problem


def _placed(path: Path, fault: str) -> str:
    """A fault with the path before it, which messages may have as a name only."""
    fault = " ".join(fault.split())
    if fault.startswith(str(path)):
        return fault
    rest = fault.removeprefix(path.name)
    return f"{path}{rest}" if rest != fault else f"{path}: {fault}"
