import contextlib
import email.utils
import hashlib
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from robust0.download import UnreachableError, fetch, web
from robust0.errors import DataError, ZooError

BODY = bytes(range(256)) * 20
SHA = hashlib.sha256(BODY).hexdigest()


class Raw:
    """A socket server whose n-th reply is whatever bytes ``reply(n, request text)`` returns."""

    def __init__(self, reply):
        self._reply = reply
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.requests: list[str] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/file"

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                text = b""
                while b"\r\n\r\n" not in text:
                    text += connection.recv(65536)
                self.requests.append(text.decode())
                connection.sendall(self._reply(len(self.requests) - 1, text.decode()))


def head(status: str, **headers: object) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def offset_of(request: str) -> int:
    for line in request.splitlines():
        if line.lower().startswith("range: bytes="):
            return int(line.split("=")[1].rstrip("-"))
    return 0


def partial(start: int, body: bytes = BODY, tag: str = '"v1"') -> bytes:
    span = f"bytes {start}-{len(body) - 1}/{len(body)}"
    return head(
        "206 Partial Content",
        Content_Length=len(body) - start,
        Content_Range=span,
        ETag=tag,
    )


def run(url, target, waits=None, **options):
    options.setdefault("error", DataError)
    sleep = (lambda _: None) if waits is None else waits.append
    return list(fetch(url, target, sleep=sleep, **options))


def leftovers(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.glob(f"{target.name}.part*"))


@pytest.fixture
def target(tmp_path):
    return tmp_path / "folder with spaces é" / "file.bin"


def test_a_whole_file_arrives_verified_and_alone(httpserver: HTTPServer, target):
    httpserver.expect_request("/f").respond_with_data(BODY)
    events = run(httpserver.url_for("/f"), target, sha256=SHA.upper(), size=len(BODY))
    assert target.read_bytes() == BODY
    assert leftovers(target) == []
    assert [event.done for event in events] == sorted(event.done for event in events)
    assert events[-1].done == events[-1].total == len(BODY)
    assert {event.label for event in events} == {"file.bin"}


def test_a_matching_file_is_not_fetched_again(target):
    target.parent.mkdir()
    target.write_bytes(BODY)
    run("http://127.0.0.1:9/never", target, sha256=SHA)
    assert target.read_bytes() == BODY


def test_a_file_with_other_content_is_replaced(httpserver: HTTPServer, target):
    target.parent.mkdir()
    target.write_bytes(b"<html>warning page</html>")
    httpserver.expect_request("/f").respond_with_data(BODY)
    run(httpserver.url_for("/f"), target, md5=hashlib.md5(BODY).hexdigest())
    assert target.read_bytes() == BODY


@pytest.mark.parametrize(
    ("status", "says"), [(401, "login"), (403, "refuses"), (404, "does not have"), (418, "418")]
)
def test_refusals_are_told_at_once(httpserver: HTTPServer, target, status, says):
    httpserver.expect_request("/f").respond_with_data(b"<html>", status=status)
    waits: list[float] = []
    with pytest.raises(ZooError, match=says) as caught:
        run(httpserver.url_for("/f"), target, waits, error=ZooError)
    assert httpserver.url_for("/f") in caught.value.message
    assert caught.value.hint
    assert isinstance(caught.value.__cause__, UnreachableError)
    assert waits == []
    assert len(httpserver.log) == 1
    assert not target.exists()
    assert leftovers(target) == []


@pytest.mark.parametrize(("header", "waited"), [("7", 7.0), ("86400", 60.0), ("soon", 1.0)])
def test_429_waits_as_asked_within_reason(httpserver: HTTPServer, target, header, waited):
    busy = Response("slow down", status=429, headers={"Retry-After": header})
    httpserver.expect_ordered_request("/f").respond_with_response(busy)
    httpserver.expect_ordered_request("/f").respond_with_data(BODY)
    waits: list[float] = []
    run(httpserver.url_for("/f"), target, waits, sha256=SHA)
    assert waits == [waited]
    assert target.read_bytes() == BODY


def test_retry_after_may_be_a_date(httpserver: HTTPServer, target):
    date = email.utils.formatdate(time.time() + 20, usegmt=True)
    busy = Response("", status=503, headers={"Retry-After": date})
    httpserver.expect_ordered_request("/f").respond_with_response(busy)
    httpserver.expect_ordered_request("/f").respond_with_data(BODY)
    waits: list[float] = []
    run(httpserver.url_for("/f"), target, waits)
    assert 15 < waits[0] <= 20


def test_a_server_error_is_tried_again(httpserver: HTTPServer, target):
    httpserver.expect_ordered_request("/f").respond_with_data("oops", status=500)
    httpserver.expect_ordered_request("/f").respond_with_data("oops", status=502)
    httpserver.expect_ordered_request("/f").respond_with_data(BODY)
    waits: list[float] = []
    run(httpserver.url_for("/f"), target, waits, sha256=SHA)
    assert waits == [1.0, 2.0]
    assert target.read_bytes() == BODY


def test_a_lasting_server_error_is_given_up(httpserver: HTTPServer, target):
    httpserver.expect_request("/f").respond_with_data("oops", status=500)
    waits: list[float] = []
    with pytest.raises(DataError, match="HTTP 500") as caught:
        run(httpserver.url_for("/f"), target, waits)
    assert waits == [1.0, 2.0, 4.0]
    assert isinstance(caught.value.__cause__, UnreachableError)


def test_a_cut_connection_is_resumed_where_it_stopped(target):
    def reply(number, request):
        if number == 0:
            return head("200 OK", Content_Length=len(BODY), ETag='"v1"') + BODY[:1000]
        return partial(offset_of(request)) + BODY[offset_of(request) :]

    with Raw(reply) as server:
        run(server.url, target, sha256=SHA)
    assert target.read_bytes() == BODY
    assert [offset_of(request) for request in server.requests] == [0, 1000]
    assert 'If-Range: "v1"' in server.requests[1]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, len(BODY)), max_size=6))
def test_whatever_the_cuts_the_bytes_are_right(tmp_path_factory, cuts):
    target = tmp_path_factory.mktemp("cuts") / "f"

    def reply(number, request):
        start = offset_of(request)
        first = head("200 OK", Content_Length=len(BODY), ETag='"v1"')
        end = max(start, cuts[number]) if number < len(cuts) else len(BODY)
        return (partial(start) if start else first) + BODY[start:end]

    with Raw(reply) as server, contextlib.suppress(DataError):
        run(server.url, target, sha256=SHA)
        assert target.read_bytes() == BODY
    if not target.exists():  # four tries in a row brought nothing new
        assert len(cuts) >= 4


def interrupted(url: str, target: Path, **options) -> None:
    """A first process that is stopped in the middle."""
    steps = fetch(url, target, error=DataError, **options)
    while next(steps).done == 0:
        pass
    steps.close()


def test_a_later_process_resumes(target):
    def reply(number, request):
        if number == 0:
            return head("200 OK", Content_Length=len(BODY), ETag='"v1"') + BODY[:1000]
        return partial(offset_of(request)) + BODY[offset_of(request) :]

    with Raw(reply) as server:
        interrupted(server.url, target)
        assert len(leftovers(target)) == 2
        assert not target.exists()
        run(server.url, target)
    assert target.read_bytes() == BODY
    assert offset_of(server.requests[1]) == 1000
    assert leftovers(target) == []


def test_a_changed_remote_file_is_not_spliced(target):
    newer = BODY[::-1] + b"longer"

    def reply(number, request):
        if number == 0:
            return head("200 OK", Content_Length=len(BODY), ETag='"v1"') + BODY[:1000]
        return head("200 OK", Content_Length=len(newer), ETag='"v2"') + newer

    with Raw(reply) as server:
        run(server.url, target)
    assert target.read_bytes() == newer


def test_a_server_that_ignores_if_range_is_caught_by_its_tag(target):
    newer = BODY[::-1]

    def reply(number, request):
        if number == 0:
            return head("200 OK", Content_Length=len(BODY), ETag='"v1"') + BODY[:1000]
        start = offset_of(request)
        if start:
            return partial(start, newer, tag='"v2"') + newer[start:]
        return head("200 OK", Content_Length=len(newer), ETag='"v2"') + newer

    with Raw(reply) as server:
        run(server.url, target)
    assert target.read_bytes() == newer


def test_a_continuation_from_elsewhere_is_refused(target):
    def reply(number, request):
        if number == 0:
            return head("200 OK", Content_Length=len(BODY), ETag='"v1"') + BODY[:1000]
        if offset_of(request):
            return partial(7) + BODY[7:]
        return head("200 OK", Content_Length=len(BODY), ETag='"v1"') + BODY

    with Raw(reply) as server:
        run(server.url, target)
    assert target.read_bytes() == BODY


def test_416_starts_again(target):
    def reply(number, request):
        if number == 0:
            return head("200 OK", Content_Length=len(BODY), ETag='"v1"') + BODY[:1000]
        if offset_of(request):
            return head("416 Range Not Satisfiable", Content_Length=0)
        return head("200 OK", Content_Length=len(BODY)) + BODY

    with Raw(reply) as server:
        run(server.url, target)
    assert target.read_bytes() == BODY


def test_without_validator_or_digest_nothing_is_resumed(target):
    def reply(number, request):
        body = BODY[:1000] if number == 0 else BODY
        return head("200 OK", Content_Length=len(BODY), ETag='W/"weak"') + body

    with Raw(reply) as server:
        interrupted(server.url, target)
        run(server.url, target)
    assert offset_of(server.requests[1]) == 0
    assert target.read_bytes() == BODY


def test_a_damaged_partial_file_is_fetched_again_from_zero(target):
    def reply(number, request):
        start = offset_of(request)
        if start:
            return partial(start) + BODY[start:]
        body = BODY[:1000] if number == 0 else BODY
        return head("200 OK", Content_Length=len(BODY), ETag='"v1"') + body

    with Raw(reply) as server:
        interrupted(server.url, target, sha256=SHA)
        part = target.with_name(target.name + ".part")
        part.write_bytes(b"\0" * part.stat().st_size)
        run(server.url, target, sha256=SHA)
    assert target.read_bytes() == BODY
    assert [offset_of(request) for request in server.requests] == [0, 1000, 0]


def test_a_partial_file_of_another_address_is_dropped(httpserver: HTTPServer, target):
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(b"other")
    note = target.with_name("file.bin.part.json")
    note.write_text(json.dumps({"url": "http://elsewhere/", "validator": '"v1"'}))
    httpserver.expect_request("/f").respond_with_data(BODY)
    run(httpserver.url_for("/f"), target)
    assert target.read_bytes() == BODY


def test_a_complete_partial_file_needs_no_request(target):
    url = "http://127.0.0.1:9/never"
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(BODY)
    note = target.with_name("file.bin.part.json")
    note.write_text(json.dumps({"url": url, "validator": '"v1"'}))
    run(url, target, sha256=SHA, size=len(BODY))
    assert target.read_bytes() == BODY


def test_a_wrong_length_is_refused(httpserver: HTTPServer, target):
    httpserver.expect_request("/f").respond_with_data(BODY)
    with pytest.raises(DataError, match=f"expected 9 bytes, got {len(BODY)}") as caught:
        run(httpserver.url_for("/f"), target, size=9)
    assert caught.value.__cause__ is None
    assert not target.exists()


def test_more_than_the_expected_length_is_refused(target):
    with (
        Raw(lambda number, request: head("200 OK") + BODY) as server,
        pytest.raises(DataError, match="expected 9 bytes, got more"),
    ):
        run(server.url, target, size=9)
    assert not target.exists()


def test_a_body_that_is_always_too_short_is_given_up(target):
    short = head("200 OK", Content_Length=len(BODY)) + BODY[:10]
    with (
        Raw(lambda number, request: short) as server,
        pytest.raises(DataError, match=f"cut after 10 of {len(BODY)} bytes"),
    ):
        run(server.url, target)
    assert not target.exists()


def test_a_wrong_hash_names_both_and_leaves_nothing(httpserver: HTTPServer, target):
    httpserver.expect_request("/f").respond_with_data(b"<html>sign in</html>")
    actual = hashlib.sha256(b"<html>sign in</html>").hexdigest()
    with pytest.raises(DataError, match=f"expected sha256 {SHA}, got {actual}") as caught:
        run(httpserver.url_for("/f"), target, sha256=SHA)
    assert caught.value.__cause__ is None  # a second source must not be tried
    assert not target.exists()
    assert leftovers(target) == []


def test_redirects_are_followed(httpserver: HTTPServer, target):
    httpserver.expect_request("/a").respond_with_response(
        Response(status=302, headers={"Location": httpserver.url_for("/b")})
    )
    httpserver.expect_request("/b").respond_with_data(BODY)
    run(httpserver.url_for("/a"), target, sha256=SHA)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("place", ["file:///etc/hostname", "ftp://localhost/f"])
def test_redirects_off_the_web_are_refused(httpserver: HTTPServer, target, place):
    httpserver.expect_request("/a").respond_with_response(
        Response(status=302, headers={"Location": place})
    )
    with pytest.raises(DataError):
        run(httpserver.url_for("/a"), target)
    assert not target.exists()


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        ("https://a/f", "http://a/f", False),
        ("https://a/f", "file:///etc/hostname", False),
        ("https://a/f", "https://b/f", True),
        ("http://a/f", "https://a/f", True),
    ],
)
def test_redirects_never_leave_https(tmp_path, old, new, allowed):
    request = urllib.request.Request(old)
    body = (tmp_path / "body").open("w+b")
    arguments = (request, body, 302, "Found", {}, new)
    with body:
        if allowed:
            assert web._SafeRedirects().redirect_request(*arguments).full_url == new
        else:
            with pytest.raises(web.RefusedError, match="redirects from https to"):
                web._SafeRedirects().redirect_request(*arguments)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://localhost/f", "data:,x", "name"])
def test_only_web_addresses_are_fetched(target, url):
    with pytest.raises(DataError, match="not a web address"):
        run(url, target)


@pytest.mark.parametrize("url", ["http://no-such-host.invalid/f", "http://127.0.0.1:9/f"])
def test_an_unreachable_host_is_told_as_such(target, url):
    with pytest.raises(DataError, match="cannot") as caught:
        run(url, target)
    assert isinstance(caught.value.__cause__, UnreachableError)


def test_offline_forbids_the_network_but_not_what_is_here(httpserver, target, monkeypatch):
    monkeypatch.setenv("ROBUST0_OFFLINE", "1")
    with pytest.raises(DataError, match="ROBUST0_OFFLINE"):
        run(httpserver.url_for("/f"), target)
    target.write_bytes(BODY)
    run(httpserver.url_for("/f"), target, sha256=SHA)
    assert httpserver.log == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="cannot write"):
        run("http://127.0.0.1:9/f", tmp_path / "file" / "target")


def test_a_file_larger_than_the_disk_is_refused_before_it_comes(target):
    with (
        Raw(lambda number, request: head("200 OK", Content_Length=10**17)) as server,
        pytest.raises(DataError, match="not enough space"),
    ):
        run(server.url, target)


SCRIPT = """
import sys
from pathlib import Path
from robust0.download import fetch
from robust0.errors import DataError
list(fetch(sys.argv[1], Path(sys.argv[2]), sha256=sys.argv[3], error=DataError))
"""


def test_two_processes_fetch_once(httpserver: HTTPServer, target):
    def slow(request: Request) -> Response:
        time.sleep(1.5)
        return Response(BODY)

    httpserver.expect_request("/f").respond_with_handler(slow)
    command = [sys.executable, "-c", SCRIPT, httpserver.url_for("/f"), str(target), SHA]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(30) for process in both] == [0, 0]
    assert target.read_bytes() == BODY
    assert len(httpserver.log) == 1


# -- servers that mean no good -----------------------------------------------------------------

ODD = ["²", "٣", "9" * 5000, "-1", "1e3", "0x10", "", " ", "12,13"]


@pytest.mark.parametrize("value", ODD)
def test_an_odd_length_is_no_length(value, tmp_path):
    with Raw(lambda *_: head("200 OK", X_Length=1) + BODY) as server:
        run(server.url, tmp_path / "plain", sha256=SHA)
    header = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + value.encode()
    with Raw(lambda *_: header + b"\r\n\r\n" + BODY) as server:
        run(server.url, tmp_path / "odd", sha256=SHA)
    assert (tmp_path / "odd").read_bytes() == BODY


@pytest.mark.parametrize("value", ODD)
def test_an_odd_range_is_no_total(value, tmp_path):
    def reply(number, request):
        if number == 0:
            return head("200 OK", Content_Length=len(BODY), ETag='"v1"') + BODY[:100]
        start = offset_of(request)
        text = 'HTTP/1.1 206 Partial Content\r\nConnection: close\r\nETag: "v1"\r\n'
        text += f"Content-Range: bytes {start}-{len(BODY) - 1}/{value}\r\n\r\n"
        return text.encode() + BODY[start:]

    with Raw(reply) as server:
        run(server.url, tmp_path / "odd", sha256=SHA)
    assert (tmp_path / "odd").read_bytes() == BODY


@pytest.mark.parametrize(
    "value", [*ODD, "Fri, 31 Dec 99999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 -2359"]
)
def test_an_odd_pause_is_bounded(value, tmp_path):
    def reply(number, _):
        if number == 0:
            return f"HTTP/1.1 503 Busy\r\nRetry-After: {value}\r\n\r\n".encode()
        return head("200 OK", Content_Length=len(BODY)) + BODY

    waits = []
    with Raw(reply) as server:
        run(server.url, tmp_path / "file", waits, sha256=SHA)
    assert len(waits) == 1
    assert 0 <= waits[0] <= 60


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://[::1]x/", "http://host:port/", "http://ex\u00e4mple.org/", "http://h/\u00e4",
     "http://h/a b", "http://h/\r\nX: y", "file:///etc/passwd", "http://"],
)  # fmt: skip
def test_what_is_no_address_is_refused_at_once(url, tmp_path):
    waits = []
    with pytest.raises(DataError):
        run(url, tmp_path / "file", waits)
    assert waits == []


def test_a_redirect_to_no_address_is_refused(tmp_path):
    with Raw(lambda *_: head("302 Found", Location="http://[::1")) as server:
        with pytest.raises(DataError):
            run(server.url, tmp_path / "file")
        assert len(server.requests) == 1


def test_a_drip_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(web, "_PACE_SECONDS", 0.05)
    monkeypatch.setattr(web, "_SLOWEST", 1e9)

    class Dripping(Raw):
        def _serve(self):
            while True:
                try:
                    connection, _ = self._socket.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    self.requests.append(connection.recv(65536).decode())
                    start = offset_of(self.requests[-1])
                    connection.sendall(head("200 OK", Content_Length=len(BODY)))
                    for place in range(start, len(BODY), 2):
                        connection.sendall(BODY[place : place + 2])
                        time.sleep(0.02)

    with Dripping(None) as server:
        with pytest.raises(DataError, match=r"only .* bytes arrived"):
            run(server.url, tmp_path / "file")
        assert len(server.requests) == 4


def test_headers_that_drip_are_given_up(monkeypatch):
    closed = threading.Event()

    class Answer:
        def close(self):
            closed.set()

    class Slow:
        def open(self, *_, timeout):
            time.sleep(6 * timeout)
            return Answer()

    monkeypatch.setattr(web, "_opener", Slow)
    monkeypatch.setattr(web, "_TIMEOUT_SECONDS", 0.05)
    with pytest.raises(web.RetryError, match="no answer within"):
        web.request("http://127.0.0.1/", {})
    assert closed.wait(5), "the answer that came too late is closed"
