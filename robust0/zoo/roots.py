"""Where a zoo is: the shipped folder, another folder, a web address, or a repository on the hub.

A root gives its index and brings single files here, verified. Chosen by ``--zoo``, $ROBUST0_ZOO or
``zoo:`` in the user's settings. No torch here.
"""

import hashlib
import os
import re
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast
from urllib.parse import quote

from filelock import FileLock
from pydantic import ConfigDict

from robust0.download import UnreachableError, fetch, offline
from robust0.errors import ZooError
from robust0.events import Transfer
from robust0.files import at_home
from robust0.records import Frozen
from robust0.resources import cache_dir, config_file, shipped
from robust0.zoo.cards import Index, is_id, is_web
from robust0.zoo.documents import MAX_YAML, read_yaml
from robust0.zoo.hub import download
from robust0.zoo.scores import Hash, Name

INDEX = "index.yaml"
SHIPPED = "shipped"
HUB = "hf-hub:"
_HUB = re.compile(r"hf-hub:([\w.-]+/[\w.-]+)(?:@(.*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
Bringing = Generator[Transfer, None, Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooFile:
    """A file of a zoo: its name there, its name here, and what is known of its bytes."""

    file: str
    model: str  # the id it belongs to
    local: str
    sha256: str | None = None
    size: int | None = None
    limit: int  # bytes that it may have at most


@dataclass(frozen=True, slots=True)
class Listing:
    """The ids of a zoo, and the card's hash where the zoo publishes one."""

    cards: dict[str, tuple[Hash, int] | None]
    stale: str = ""  # why this is what was remembered, not what is there now


class Root(Protocol):
    """A zoo."""

    @property
    def name(self) -> str:
        """What the user calls it."""

    def listing(self, *, refresh: bool) -> Listing:
        """Its ids; without ``refresh`` what is remembered will do."""

    def bring(self, wanted: ZooFile) -> Bringing:
        """The path of a file on this machine, verified as far as its bytes are known."""


class UserSettings(Frozen):
    """What the zoo reads from the user's settings; other keys belong to others."""

    zoo: Name | None = None

    model_config = ConfigDict(extra="ignore", frozen=True)


def open_root(zoo: str | None = None) -> Root:
    """The zoo of this name, or the one the user has chosen, or the shipped one."""
    text = zoo or os.environ.get("ROBUST0_ZOO", "").strip() or _configured() or SHIPPED
    if text == SHIPPED:
        return Folder(SHIPPED, shipped("model_zoo"))
    if text.startswith(HUB):
        return _hub(text)
    if "://" in text:
        if not is_web(text):
            raise ZooError(
                f"{text!r} is not the address of a zoo",
                "use https:// without login, query or fragment (http:// only for this machine)",
            )
        return Web(text.rstrip("/"))
    folder = at_home(text)
    if not folder.is_dir():
        raise ZooError(
            f"there is no zoo {text!r}",
            "give a folder, an https:// address, hf-hub:OWNER/REPO@COMMIT or 'shipped'",
        )
    return Folder(text, folder)


def _configured() -> str | None:
    path = config_file()
    return read_yaml(path, UserSettings).zoo if path.is_file() else None


def _hub(text: str) -> "Hub":
    repository, revision = on_hub(text, "hf-hub:OWNER/REPO@COMMIT")
    if not _COMMIT.fullmatch(revision):
        raise ZooError(
            f"the hub's {repository} is not pinned to a commit (got {revision or 'nothing'!r})",
            f"write hf-hub:{repository}@ and the 40 hex digits of a commit: branches move",
        )
    return Hub(repository, revision)


def on_hub(text: str, form: str) -> tuple[str, str]:
    """OWNER/REPO and what follows @, or nothing; refuses what is not of this form."""
    match = _HUB.fullmatch(text)
    if match is None:
        raise ZooError(f"{text!r} is not {form}", "check the spelling")
    return match[1], match[2] or ""


def hub_now(text: str) -> "Hub":
    """A repository at the commit where its main branch, or the revision behind @, is now."""
    repository, revision = on_hub(text, "hf-hub:OWNER/REPO or hf-hub:OWNER/REPO@REVISION")
    path = download(repository, revision or None, INDEX)
    return Hub(repository, path.parent.name)  # the hub's cache has a folder per commit


@dataclass(frozen=True, slots=True)
class Folder:
    """A zoo on this machine; its cards are what lies in it."""

    name: str
    path: Path

    def listing(self, *, refresh: bool) -> Listing:  # noqa: ARG002 - nothing is remembered
        """Every card in the folder."""
        stems = sorted(path.stem for path in self.path.glob("*.yaml"))
        return Listing({stem: None for stem in stems if is_id(stem)})

    def bring(self, wanted: ZooFile) -> Bringing:
        """The file as it lies there."""
        yield from ()  # a generator like the others, though nothing is transferred
        path = self.path / wanted.file
        if not path.is_file():
            raise ZooError(f"{path} is missing", "restore the file, or choose another zoo")
        verify(path, wanted)
        return path


@dataclass(frozen=True, slots=True)
class Web:
    """A zoo behind a web server, with index.yaml; files are kept in the cache."""

    base: str
    cache: Path = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha256(self.base.encode()).hexdigest()[:16]
        object.__setattr__(self, "cache", cache_dir() / "zoo" / digest)

    @property
    def name(self) -> str:
        """Its address."""
        return self.base

    def listing(self, *, refresh: bool) -> Listing:
        """What index.yaml says now, or said when the server was last reached."""
        kept = self.cache / INDEX
        if (offline() or not refresh) and kept.is_file():
            return _listing(kept, "ROBUST0_OFFLINE is set" if offline() else "")
        fresh = self.cache / "fresh.yaml"
        with _locked(self.cache / "index.lock"):
            fresh.unlink(missing_ok=True)
            try:
                for _ in _bounded(fetch(f"{self.base}/{INDEX}", fresh, error=ZooError), fresh):
                    pass
            except ZooError as problem:
                if not isinstance(problem.__cause__, UnreachableError) or not kept.is_file():
                    raise
                return _listing(kept, problem.message)
            found = _listing(fresh)  # a file that is not an index must not replace a good one
            fresh.replace(kept)
        return found

    def bring(self, wanted: ZooFile) -> Bringing:
        """The file in the cache, fetched unless it is there and right."""
        target = self.cache / "models" / wanted.model / wanted.local
        return fetched(f"{self.base}/{quote(wanted.file)}", target, wanted)


@dataclass(frozen=True, slots=True)
class Hub:
    """A repository on the Hugging Face hub at one commit, with index.yaml, through its cache."""

    repository: str
    revision: str

    @property
    def name(self) -> str:
        """As the user writes it."""
        return f"hf-hub:{self.repository}@{self.revision}"

    def listing(self, *, refresh: bool) -> Listing:  # noqa: ARG002 - a commit does not change
        """What index.yaml says at this commit."""
        return _listing(download(self.repository, self.revision, INDEX))

    def bring(self, wanted: ZooFile) -> Bringing:
        """The file in the hub's own cache."""
        yield Transfer(wanted.local, 0, wanted.size)
        path = download(self.repository, self.revision, wanted.file)
        verify(path, wanted)
        size = path.stat().st_size
        yield Transfer(wanted.local, size, size)
        return path


def fetched(url: str, target: Path, wanted: ZooFile) -> Bringing:
    """A file from the web at its place in the cache."""
    source = fetch(url, target, sha256=wanted.sha256, size=wanted.size, error=ZooError)
    yield from _bounded(source, target, wanted.limit)
    return target


def verify(path: Path, wanted: ZooFile) -> None:
    """Refuse a file that is not the one its card describes."""
    size = path.stat().st_size
    if wanted.size is not None and size != wanted.size:
        raise ZooError(
            f"{path} has {size:,} bytes, its card says {wanted.size:,}",
            "restore the file; a git-LFS pointer needs: git lfs pull",
        )
    if size > wanted.limit:
        raise ZooError(
            f"{path} has {size:,} bytes, expected at most {wanted.limit:,}", "restore it"
        )
    if wanted.sha256 is None:
        return
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != wanted.sha256:
        raise ZooError(
            f"{path} has sha256 {digest}, its card says {wanted.sha256}",
            "do not use it: restore the file, or delete it and pull again",
        )


def _listing(path: Path, stale: str = "") -> Listing:
    entries = read_yaml(path, Index).cards
    return Listing({name: (entry.sha256, entry.size) for name, entry in entries.items()}, stale)


def _bounded(source: Iterator[Transfer], target: Path, limit: int = MAX_YAML) -> Iterator[Transfer]:
    """The same events, unless more arrives than such a file may have."""
    # Closed even when refused, so that its lock and its files are free for the next try.
    with closing(cast("Generator[Transfer, None, None]", source)) as events:
        for event in events:
            if max(event.done, event.total or 0) > limit:
                break
            yield event
        else:
            return
    for suffix in (".part", ".part.json"):
        target.with_name(f"{target.name}{suffix}").unlink(missing_ok=True)
    raise ZooError(
        f"{target.name} is larger than {limit:,} bytes", "check --zoo: this is not a zoo"
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as problem:
        raise ZooError(
            f"cannot write {path.parent}: {problem.strerror or problem}",
            "set ROBUST0_CACHE to a folder you may write to",
        ) from problem
    try:
        yield
    finally:
        lock.release()
