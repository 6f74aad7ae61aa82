"""One way to fetch a file: resumed after a cut, verified, and put in its place in one step."""

import hashlib
import http.client
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from robust0.download import web
from robust0.errors import Robust0Error
from robust0.events import Transfer

_BLOCK = 1 << 20
_TRIES_WITHOUT_PROGRESS = 4
_LONGEST_WAIT_SECONDS = 60.0


class UnreachableError(Exception):
    """The ``__cause__`` of a refusal when the server was silent, failing or unwilling.

    A caller with a second source turns to it on this cause only, never after a wrong hash.
    """


def offline() -> bool:
    """Whether $ROBUST0_OFFLINE forbids every use of the network."""
    return os.environ.get("ROBUST0_OFFLINE", "").strip().lower() in {"1", "true", "yes", "on"}


def fetch(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    md5: str | None = None,
    size: int | None = None,
    error: type[Robust0Error],
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Transfer]:
    """Bring ``url`` to ``target``, telling the progress; nothing happens until it is iterated.

    A target that is already there and matches is left alone. Bytes go to ``<target>.part``, which a
    later call resumes; only a complete and verified file is ever called ``target``. A lock file
    beside it makes the second of two processes wait and then find the finished file.

    Args:
        url: An http or https address.
        target: The finished file; its folder is made.
        sha256: Expected hex digest.
        md5: Expected hex digest, for sources that publish nothing better.
        size: Expected bytes.
        error: What to raise, with UnreachableError as its cause if the bytes could not be had.
        sleep: Waits between two tries; tests pass their own.
    """
    digests = {name: value.lower() for name, value in (("sha256", sha256), ("md5", md5)) if value}
    lock = FileLock(f"{target}.lock", thread_local=False)
    part = _Partial(target, digests)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        while not acquired(lock):
            yield Transfer(target.name, part.size_on_disk(), size)
        if not _matches(target, digests, size):
            with closing(part):
                yield from _complete(url, part, size, sleep)
        done = target.stat().st_size
        yield Transfer(target.name, done, done)
    except web.RefusedError as refusal:
        cause = UnreachableError(str(refusal)) if refusal.unreachable else None
        raise error(refusal.message, refusal.hint) from cause
    except OSError as problem:
        raise error(
            f"cannot write {problem.filename or target}: {problem.strerror or problem}",
            "check the disk's free space and the folder's permissions",
        ) from problem
    finally:
        lock.release()


class _Partial:
    """The unfinished file beside its target, hashed as it grows, and the version it belongs to."""

    def __init__(self, target: Path, digests: dict[str, str]) -> None:
        self.target, self.digests = target, digests
        self.path = target.with_name(target.name + ".part")
        self.note = target.with_name(target.name + ".part.json")
        self.offset = 0
        self.inherited = False  # holds bytes of an earlier call
        self.validator: str | None = None  # a strong ETag or a date, for If-Range
        self._hashers = {name: hashlib.new(name) for name in digests}
        self._file: IO[bytes] | None = None

    def size_on_disk(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def open(self, url: str) -> None:
        """Take over what an earlier call left, if it is known to belong to the same file."""
        try:
            note = json.loads(self.note.read_text())
            same, validator = note["url"] == url, note["validator"]
        except (OSError, ValueError, TypeError, KeyError):
            same, validator = False, None
        self.path.touch()
        self._file = self.path.open("r+b")
        # Without a validator or a digest nothing could tell that the remote file has changed.
        if not same or not (validator or self.digests):
            self.restart()
            return
        while block := self._file.read(_BLOCK):
            self._count(block)
        self.inherited, self.validator = self.offset > 0, validator

    def restart(self) -> None:
        """Drop every byte and the version they belonged to."""
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
        self.offset, self.inherited, self.validator = 0, False, None
        self._hashers = {name: hashlib.new(name) for name in self.digests}

    def belongs_to(self, url: str, headers: http.client.HTTPMessage) -> None:
        """Note which version of the remote file the bytes to come belong to."""
        tag = headers.get("ETag")
        # A weak tag promises equivalent, not equal bytes: it may not join two halves.
        self.validator = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")
        self.note.write_text(json.dumps({"url": url, "validator": self.validator}))

    def append(self, block: bytes) -> None:
        if self._file is not None:
            self._file.write(block)
            self._count(block)

    def mismatch(self) -> str | None:
        for name, expected in self.digests.items():
            actual = self._hashers[name].hexdigest()
            if actual != expected:
                return f"expected {name} {expected}, got {actual}"
        return None

    def finish(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self.close()
        self.path.replace(self.target)
        self.note.unlink(missing_ok=True)

    def discard(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            if not self.offset:
                self.discard()

    def _count(self, block: bytes) -> None:
        self.offset += len(block)
        for hasher in self._hashers.values():
            hasher.update(block)


def _complete(
    url: str, part: _Partial, size: int | None, sleep: Callable[[float], None]
) -> Iterator[Transfer]:
    """Try until the partial file is whole; only tries that bring nothing new are counted."""
    if offline():
        raise web.RefusedError(
            f"{part.target.name} is not here and ROBUST0_OFFLINE forbids fetching it",
            "unset ROBUST0_OFFLINE, or fetch the file by hand and give its path",
        )
    part.open(url)
    failures, furthest = 0, part.offset
    while True:
        try:
            if size is None or part.offset != size:
                yield from _attempt(url, part, size)
            _verify(url, part)
            part.finish()
            return
        except web.RetryError as problem:
            moved = part.offset > furthest and not isinstance(problem, web.SlowError)
            failures = 1 if moved else failures + 1
            furthest = max(furthest, part.offset)
            if isinstance(problem, web.RangeError):
                part.restart()
            if failures >= _TRIES_WITHOUT_PROGRESS:
                raise web.RefusedError(
                    f"cannot fetch {url}: {problem}",
                    "check the network and repeat the command: what has arrived is kept",
                    unreachable=True,
                ) from problem
            wait = 2.0 ** (failures - 1) if problem.wait is None else problem.wait
            sleep(min(wait, _LONGEST_WAIT_SECONDS))


def _attempt(url: str, part: _Partial, size: int | None) -> Iterator[Transfer]:
    """One request, appended to the partial file."""
    headers = {"User-Agent": "robust0", "Accept-Encoding": "identity"}
    if part.offset:
        headers["Range"] = f"bytes={part.offset}-"
        if part.validator:
            headers["If-Range"] = part.validator
    with closing(web.request(url, headers)) as response:
        total = _end(response, part)
        if size is not None and total is not None and total != size:
            raise web.RefusedError(
                f"{url} has the wrong length: expected {size} bytes, got {total}",
                "the file behind the link has changed: update robust0, or fetch it by hand",
            )
        if not part.offset:
            part.belongs_to(url, response.headers)
        _require_space(part, total)
        pace = web.Pace()
        while block := web.read(response):
            part.append(block)
            pace.count(block)
            if size is not None and part.offset > size:
                part.restart()
                raise web.RefusedError(
                    f"{url} has the wrong length: expected {size} bytes, got more",
                    "the file behind the link has changed: update robust0, or fetch it by hand",
                )
            yield Transfer(part.target.name, part.offset, total or size)
    end = size if total is None else total
    if end is not None and part.offset < end:
        raise web.RetryError(f"the connection was cut after {part.offset} of {end} bytes")


def _end(response: http.client.HTTPResponse, part: _Partial) -> int | None:
    """The whole file's length; the partial file is dropped if this answer does not continue it."""
    if response.status != 206:
        if part.offset:
            part.restart()
        return web.header_number(response.headers.get("Content-Length"))
    span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
    tag, known = response.headers.get("ETag"), part.validator
    changed = bool(known and tag and known.startswith('"') and tag != known)
    if span.partition("-")[0] != str(part.offset) or changed:
        part.restart()
        raise web.RetryError("the server continued another file", wait=0.0)
    return web.header_number(total)


def _require_space(part: _Partial, total: int | None) -> None:
    free = shutil.disk_usage(part.path.parent).free
    if total is not None and total - part.offset > free:
        raise web.RefusedError(
            f"not enough space for {part.target}: {total - part.offset} bytes needed, {free} free",
            "free some space, or set ROBUST0_CACHE to a folder on another disk",
        )


def _verify(url: str, part: _Partial) -> None:
    problem = part.mismatch()
    if problem is None:
        return
    if part.inherited:
        # The first half may be to blame (another version, a damaged disk): try once from zero.
        part.restart()
        raise web.RetryError("the resumed file has a wrong hash", wait=0.0)
    part.discard()
    raise web.RefusedError(
        f"{url} has a wrong hash: {problem}",
        "the download was damaged or replaced and is deleted: try again, or fetch it by hand",
    )


def acquired(lock: FileLock) -> bool:
    """Try for half a second to take a lock, so that the caller can say that it waits."""
    try:
        lock.acquire(timeout=0.5)
    except Timeout:
        return False
    return True


def _matches(path: Path, digests: dict[str, str], size: int | None) -> bool:
    """Whether a finished file is there and is the expected one."""
    if not path.is_file() or (size is not None and path.stat().st_size != size):
        return False
    for name, expected in digests.items():
        with path.open("rb") as file:
            if hashlib.file_digest(file, name).hexdigest() != expected:
                return False
    return True
