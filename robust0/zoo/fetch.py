"""From an id to files: a card, its weights, its report; fetched, verified and kept. No torch here.

A folder's files are used where they lie. Those of a web zoo are kept under
``<cache>/zoo/<hash of the address>/models/<id>/`` and need no network once they are there.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from robust0.errors import ZooError
from robust0.events import Transfer
from robust0.files import at_home
from robust0.resources import cache_dir
from robust0.zoo.cards import Card, is_id, is_web, read_card
from robust0.zoo.documents import MAX_JSON, MAX_YAML
from robust0.zoo.local import SUFFIX, explain_architecture, explain_folder, weights_of
from robust0.zoo.roots import (
    HUB,
    Bringing,
    Listing,
    Root,
    ZooFile,
    fetched,
    hub_now,
    open_root,
)

Progress = Callable[[Transfer], None]


@dataclass(frozen=True, slots=True)
class Found:
    """A model of a zoo: its card is here and checked, its other files may not be."""

    root: Root
    card: Card
    stale: str = ""  # why the zoo's present state is not known


def find_card(name: str, zoo: str | None = None, *, refresh: bool = True) -> Found:
    """The model of this id; refuses others, naming ids that are close.

    Args:
        name: an id, or hf-hub:OWNER/REPO[@REVISION], a repository that holds one model.
        zoo: which zoo; default: the user's choice.
        refresh: ask a remote zoo what it holds now, even if that is remembered.
    """
    if name.startswith(HUB):
        return _only_model(name, zoo)
    root = open_root(zoo)
    if not is_id(name):
        raise ZooError(
            f"{_shown(name)} is not the id of a model",
            "ids have a-z, 0-9, '.', '_' and '-': see robust0 zoo list",
        )
    listing = root.listing(refresh=refresh)
    if name not in listing.cards and not refresh:
        listing = root.listing(refresh=True)
    return Found(root, _card(root, name, listing), listing.stale)


def _only_model(name: str, zoo: str | None) -> Found:
    """The one model of a repository on the hub."""
    if zoo is not None:
        raise ZooError(f"{name} names a repository by itself", "leave out --zoo, or give an id")
    root = hub_now(name)
    listing = root.listing(refresh=False)
    if len(listing.cards) != 1:
        raise ZooError(
            f"{name} holds {len(listing.cards)} models",
            f"name one of them: robust0 zoo list --zoo {root.name}",
        )
    return Found(root, _card(root, next(iter(listing.cards)), listing))


def cards(zoo: str | None = None) -> tuple[list[Card], list[str]]:
    """Every card of a zoo, and what should be said of the others and of the list itself."""
    root = open_root(zoo)
    listing = root.listing(refresh=True)
    found, notes = [], [f"as last seen: {listing.stale}"] if listing.stale else []
    for name in listing.cards:
        try:
            found.append(_card(root, name, listing))
        except ZooError as problem:
            notes.append(f"{name} is left out: {problem.message}")
    return found, notes


def weights(found: Found) -> Bringing:
    """The weights of a model that has been found."""
    card = found.card
    wanted = ZooFile(
        file=card.source, model=card.id, local=f"{card.id}{SUFFIX}", sha256=card.sha256,
        size=card.size, limit=card.size,
    )  # fmt: skip
    if is_web(card.source):
        # By hash: a URL says nothing about which zoo it came from.
        folder = cache_dir() / "zoo" / "external" / card.sha256
        return fetched(card.source, folder / wanted.local, wanted)
    return found.root.bring(wanted)


def attachment(found: Found, kind: Literal["report", "verdicts", "radii"]) -> Bringing:
    """The report, the verdicts or the certified radii behind a card."""
    card = found.card
    files = {
        "report": (card.report, card.report_sha256),
        "verdicts": (card.verdicts, card.verdicts_sha256),
    }
    if card.certificate is not None:
        files["radii"] = (card.certificate.radii, card.certificate.radii_sha256)
    file, digest = files[kind]
    return found.root.bring(
        ZooFile(
            file=file, model=card.id, local=f"{card.id}.{kind}.json", sha256=digest, limit=MAX_JSON
        )
    )


def locate(source: str, zoo: str | None = None, progress: Progress | None = None) -> Path:
    """The weights that a user means: a file, a run directory, else a model of a zoo, pulled."""
    path = weights_of(source)
    return path or drive(weights(_identified(source, zoo)), progress)


def check_source(source: str, zoo: str | None = None) -> None:
    """Refuse what ``locate`` would refuse by its name; no weights are fetched."""
    if weights_of(source) is None:
        _identified(source, zoo)


def _identified(source: str, zoo: str | None) -> Found:
    if source.startswith(HUB):
        return find_card(source, zoo)
    folder = at_home(source)
    listed = is_id(source) and source in open_root(zoo).listing(refresh=False).cards
    if folder.is_dir() and not listed:
        explain_folder(folder)
    if not is_id(source) or source.endswith(SUFFIX):
        raise ZooError(
            f"there is no file {_shown(source)}",
            "give a run directory, a .safetensors checkpoint, or an id from robust0 zoo list",
        )
    return find_card(source, zoo, refresh=False)


def drive(bringing: Bringing, progress: Progress | None = None) -> Path:
    """Run a transfer to its end."""
    while True:
        try:
            event = next(bringing)
        except StopIteration as end:
            return Path(end.value)
        if progress is not None:
            progress(event)


def _card(root: Root, name: str, listing: Listing) -> Card:
    if name not in listing.cards:
        explain_architecture(name)
        known = sorted(listing.cards)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[:3]
        raise ZooError(
            f"there is no file and no model named {name!r} (zoo: {root.name})",
            f"close: {', '.join(near)}; see robust0 zoo list"
            if near
            else "this zoo is empty: choose another with --zoo or ROBUST0_ZOO",
        )
    digest, size = listing.cards[name] or (None, None)
    file = f"{name}.yaml"
    wanted = ZooFile(file=file, model=name, local=file, sha256=digest, size=size, limit=MAX_YAML)
    return read_card(drive(root.bring(wanted)), name)


def _shown(text: str) -> str:
    """A user's text on one line, not too long."""
    return repr(text if len(text) <= 200 else f"{text[:199]}…")
