"""One HTTP request: web addresses only, and every failure told as "try again" or "give up"."""

import email.utils
import functools
import http.client
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import closing
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import IO, Any
from urllib.parse import urlsplit

_BLOCK = 1 << 17
_TIMEOUT_SECONDS = 30.0
_PACE_SECONDS = 30.0  # over which a transfer is measured
_SLOWEST = 256.0  # bytes per second
_TEMPORARY = {408, 425, 429}
_REFUSALS = {
    401: ("asks for a login (HTTP 401)", "fetch it by hand and give its path"),
    403: ("refuses access (HTTP 403)", "check for a proxy or an access form, or fetch it by hand"),
    404: ("does not have it (HTTP 404)", "the link may have moved: update robust0, or give a path"),
}


class RefusedError(Exception):
    """Trying again would not help; ``unreachable`` if another source of the same bytes might."""

    def __init__(self, message: str, hint: str, *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.message, self.hint, self.unreachable = message, hint, unreachable


class RetryError(Exception):
    """Trying again may help; ``wait`` is the pause in seconds that the server asked for."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class SlowError(RetryError):
    """So little arrives that it does not count as progress."""


class RangeError(RetryError):
    """The server cannot continue at the offset asked for: start again from zero."""


def request(url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
    """The server's answer, headers read and body unread; the caller closes it."""
    if not _fetchable(url):
        raise RefusedError(
            f"not a web address: {url}",
            "only http and https are fetched, in ASCII: write other letters as %XX",
        )
    asked = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - checked above
    try:
        return _answer(asked)
    except urllib.error.HTTPError as problem:
        with closing(problem):
            raise _http_problem(url, problem) from problem
    except (ValueError, http.client.InvalidURL) as problem:  # of a redirect, too
        raise RefusedError(
            f"{url} does not lead to a web address: {problem}", "fetch it by hand and give its path"
        ) from problem
    except (urllib.error.URLError, http.client.HTTPException, OSError) as problem:
        raise _network_problem(url, problem) from problem


def _fetchable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        return right and url.isascii()
    except ValueError:  # a bad IPv6 address in brackets, a port that is not a number
        return False


def _answer(asked: urllib.request.Request) -> http.client.HTTPResponse:
    """Headers within a time limit: sockets only limit the wait for the next byte."""
    answers: SimpleQueue[http.client.HTTPResponse | Exception] = SimpleQueue()
    late = Event()

    def wait() -> None:
        try:
            answer = _opener().open(asked, timeout=_TIMEOUT_SECONDS)
        except Exception as problem:  # noqa: BLE001 - raised again by the caller
            answers.put(problem)
            return
        if late.is_set():
            answer.close()
        else:
            answers.put(answer)

    Thread(target=wait, daemon=True).start()
    try:
        answer = answers.get(timeout=2 * _TIMEOUT_SECONDS)
    except Empty:
        late.set()
        raise RetryError(f"no answer within {2 * _TIMEOUT_SECONDS:.0f} seconds") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


class Pace:
    """Ends a transfer that drips: a server may keep a connection open for years."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._begun, self._bytes = clock, clock(), 0

    def count(self, block: bytes) -> None:
        """Take in what has arrived."""
        self._bytes += len(block)
        spent = self._clock() - self._begun
        if spent < _PACE_SECONDS:
            return
        if self._bytes < spent * _SLOWEST:
            raise SlowError(f"only {self._bytes} bytes arrived in {spent:.0f} seconds")
        self._begun, self._bytes = self._clock(), 0


def header_number(text: str | None) -> int | None:
    """A whole number in a header; None for anything else, such as superscripts or 5,000 digits."""
    return int(text) if text is not None and re.fullmatch(r"\s*[0-9]{1,18}\s*", text) else None


def read(response: http.client.HTTPResponse) -> bytes:
    """The next bytes of the body, empty at its end."""
    try:
        return response.read1(_BLOCK)
    except (http.client.HTTPException, OSError) as problem:
        raise RetryError(f"the connection was cut ({type(problem).__name__})") from problem


def _http_problem(url: str, problem: urllib.error.HTTPError) -> RefusedError | RetryError:
    code = problem.code
    if code == 416:
        return RangeError("HTTP 416", wait=0.0)
    if code in _TEMPORARY or code >= 500:
        return RetryError(f"HTTP {code}", _retry_after(problem.headers.get("Retry-After")))
    says, hint = _REFUSALS.get(code, (f"answers HTTP {code}", "fetch it by hand and give its path"))
    return RefusedError(f"the server {says}: {url}", hint, unreachable=True)


def _network_problem(url: str, problem: Exception) -> RefusedError | RetryError:
    reason = getattr(problem, "reason", problem)
    message = f"cannot reach {urlsplit(url).netloc}: {reason}"
    no_such_host = isinstance(reason, socket.gaierror) and reason.errno == socket.EAI_NONAME
    if no_such_host or isinstance(reason, ssl.SSLCertVerificationError):
        hint = "check the network, a proxy or a filter, or fetch the file by hand"
        return RefusedError(message, hint, unreachable=True)
    return RetryError(message)


def _retry_after(value: str | None) -> float | None:
    """Seconds to wait: the header is either a number of seconds or a date."""
    if value is None:
        return None
    seconds = header_number(value)
    if seconds is not None:
        return float(seconds)
    try:
        moment = email.utils.parsedate_to_datetime(value)
        return max(0.0, moment.timestamp() - time.time())
    except (
        ValueError,
        TypeError,
        OverflowError,
        OSError,
        IndexError,
    ):  # not a date, or one far away
        return None


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects between web addresses, and never from https down to http."""

    def http_error_302(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
    ) -> Any:  # noqa: ANN401 - as urllib has it
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError:  # not an address
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if new not in ("http", "https") or (old == "https" and new == "http"):
            fp.close()
            raise RefusedError(
                f"{req.full_url} redirects from {old} to {new}: {newurl}",
                "the source cannot be trusted: fetch the file by hand and give its path",
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@functools.cache
def _certificates() -> ssl.SSLContext:
    return ssl.create_default_context()


def _opener() -> urllib.request.OpenerDirector:
    # Built by hand because build_opener() would also serve file:, ftp: and data: addresses.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=_certificates()),
        urllib.request.HTTPDefaultErrorHandler(),
        _SafeRedirects(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener
