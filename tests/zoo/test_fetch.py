import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from werkzeug import Response

import robust0
from robust0.commands.zoo_add import write_index
from robust0.errors import ZooError
from robust0.models.checkpoint import load_checkpoint
from robust0.zoo.cards import read_card
from robust0.zoo.fetch import attachment, cards, drive, find_card, locate, weights
from tests.zoo.conftest import NAME, digest_of
from tests.zoo.test_cards import change

WEIGHTS = f"{NAME}.safetensors"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def requests(httpserver) -> list[str]:
    return [request.path.rpartition("/")[2] for request, _ in httpserver.log]


# --- folders -------------------------------------------------------------------------------------


def test_a_folders_files_are_used_where_they_lie(zoo, tmp_path):
    assert list(weights(find_card(NAME, str(zoo)))) == []
    assert locate(NAME, str(zoo)) == zoo / WEIGHTS
    assert drive(attachment(find_card(NAME, str(zoo)), "report")) == zoo / f"{NAME}.report.json"
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(b"version https://git-lfs"), "its card says"),
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), "has sha256"),
    ],
)
def test_weights_of_a_folder_are_verified(zoo, spoil, words):
    spoil(zoo / WEIGHTS)
    with pytest.raises(ZooError, match=words):
        locate(NAME, str(zoo))


def test_a_report_of_a_folder_is_verified(zoo):
    path = zoo / f"{NAME}.report.json"
    path.write_text(path.read_text().replace("fast-ls-l0", "slow-ls-l0"))
    with pytest.raises(ZooError, match="has sha256"):
        drive(attachment(find_card(NAME, str(zoo)), "report"))


def test_bad_cards_are_left_out_of_the_list(zoo):
    (zoo / "bad.yaml").write_text("schema: 9\n")
    (zoo / "Not An Id.yaml").write_text("x")
    found, notes = cards(str(zoo))
    assert [card.id for card in found] == [NAME]
    assert len(notes) == 1
    assert "bad is left out" in notes[0]


# --- what a user may mean ------------------------------------------------------------------------


def test_an_existing_file_wins_over_an_id(zoo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).write_bytes(b"x")
    assert locate(NAME, str(zoo)) == Path(NAME)
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir()
    assert locate(NAME, str(zoo)) == zoo / WEIGHTS


@pytest.mark.parametrize(
    ("source", "words", "hint"),
    [
        ("toy-fats", "no file and no model named 'toy-fats'", f"close: {NAME}"),
        ("zzz", "no file and no model", f"close: {NAME}"),
        ("runs/x.safetensors", "there is no file 'runs/x.safetensors'", "zoo list"),
        ("x.safetensors", "there is no file", "zoo list"),
        ("../x", "there is no file", "zoo list"),
        ("Ü\x1b", "there is no file", "zoo list"),
        (".", "holds no model.safetensors", "run of robust0 harden"),
    ],
)
def test_what_is_neither_file_nor_id(zoo, source, words, hint):
    with pytest.raises(ZooError, match=words) as refusal:
        locate(source, str(zoo))
    assert hint in refusal.value.hint
    assert refusal.value.message.isprintable()


@pytest.mark.parametrize("name", ["../x", "index", "a/b", "A"])
def test_ids_that_leave_the_zoo(zoo, name):
    with pytest.raises(ZooError, match="is not the id of a model"):
        find_card(name, str(zoo))


def test_two_lines_of_python(zoo, monkeypatch):
    monkeypatch.setenv("ROBUST0_ZOO", str(zoo))
    images = torch.rand(2, 3, 32, 32)
    logits = robust0.load(NAME)(images)
    assert torch.equal(logits, load_checkpoint(zoo / WEIGHTS).network(images))
    assert torch.equal(logits, robust0.load(zoo / WEIGHTS)(images))


# --- a web server --------------------------------------------------------------------------------


def test_a_model_from_the_web_and_again_from_the_cache(serve, httpserver, zoo, monkeypatch):
    base = serve()
    events = list(weights(find_card(NAME, base)))
    assert (events[-1].label, events[-1].done) == (WEIGHTS, (zoo / WEIGHTS).stat().st_size)
    assert requests(httpserver) == ["index.yaml", f"{NAME}.yaml", WEIGHTS]
    path = locate(NAME, base)
    assert path.read_bytes() == (zoo / WEIGHTS).read_bytes()
    assert len(httpserver.log) == 3
    monkeypatch.setenv("ROBUST0_OFFLINE", "1")
    assert drive(weights(find_card(NAME, base))) == path
    found, notes = cards(base)
    assert [card.id for card in found] == [NAME]
    assert "ROBUST0_OFFLINE" in notes[0]
    assert len(httpserver.log) == 3


def test_offline_without_a_cache(serve, monkeypatch):
    base = serve()
    monkeypatch.setenv("ROBUST0_OFFLINE", "1")
    with pytest.raises(ZooError, match="ROBUST0_OFFLINE forbids"):
        locate(NAME, base)


def test_a_server_that_is_gone_leaves_what_was_seen(serve, httpserver, waits):
    base = serve()
    path = drive(weights(find_card(NAME, base)))
    httpserver.clear()
    httpserver.expect_request("/zoo/index.yaml").respond_with_data("", status=503)
    assert drive(weights(find_card(NAME, base))) == path
    assert "HTTP 503" in find_card(NAME, base).stale


def test_a_damaged_cache_is_mended(serve, httpserver):
    base = serve()
    path = drive(weights(find_card(NAME, base)))
    data = path.read_bytes()
    path.write_bytes(data[:100])
    assert locate(NAME, base).read_bytes() == data
    assert requests(httpserver).count(WEIGHTS) == 2


def test_a_new_release_of_the_same_id(serve, httpserver, zoo):
    base = serve()
    drive(weights(find_card(NAME, base)))
    httpserver.clear()
    change(zoo / f"{NAME}.yaml", title="second release")
    write_index(zoo)
    serve()
    assert find_card(NAME, base, refresh=False).card.title != "second release"
    assert find_card(NAME, base).card.title == "second release"


def test_an_id_that_the_remembered_index_lacks(serve, httpserver, zoo):
    base = serve()
    drive(weights(find_card(NAME, base)))
    text = (zoo / f"{NAME}.yaml").read_text().replace(f"id: {NAME}", "id: newer")
    (zoo / "newer.yaml").write_text(text)
    write_index(zoo)
    httpserver.clear()
    serve()
    assert locate("newer", base).name == "newer.safetensors"


@pytest.mark.parametrize("file", ["index.yaml", f"{NAME}.yaml", WEIGHTS])
@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "does not have it"), (403, "refuses access"), (500, "HTTP 500"), (401, "login")],
)
def test_refusals_of_a_server(serve, httpserver, waits, file, status, words):
    base = serve(file)
    httpserver.expect_request(f"/zoo/{file}").respond_with_data("", status=status)
    with pytest.raises(ZooError, match=words) as refusal:
        locate(NAME, base)
    assert refusal.value.hint


def test_too_many_requests(serve, httpserver, waits, zoo):
    data, asked = (zoo / WEIGHTS).read_bytes(), []

    def reply(request):
        asked.append(request)
        late = len(asked) > 1
        return Response(data) if late else Response(status=429, headers={"Retry-After": "7"})

    base = serve(WEIGHTS)
    httpserver.expect_request(f"/zoo/{WEIGHTS}").respond_with_handler(reply)
    assert digest_of(locate(NAME, base)) == digest_of(zoo / WEIGHTS)
    assert waits == [7.0]


@pytest.mark.parametrize("ranges", [True, False], ids=["206", "200 instead of 206"])
def test_a_connection_cut_in_the_middle(serve, httpserver, waits, zoo, ranges):
    data, asked = (zoo / WEIGHTS).read_bytes(), []

    def reply(request):
        asked.append(request.headers.get("Range"))
        if len(asked) == 1:
            headers = {"Content-Length": str(len(data)), "ETag": '"a"'}
            return Response(iter([data[:5000]]), headers=headers)
        if not ranges:
            return Response(data, headers={"ETag": '"a"'})
        start = int(asked[-1].removeprefix("bytes=").rstrip("-"))
        span = f"bytes {start}-{len(data) - 1}/{len(data)}"
        return Response(data[start:], 206, headers={"Content-Range": span, "ETag": '"a"'})

    base = serve(WEIGHTS)
    httpserver.expect_request(f"/zoo/{WEIGHTS}").respond_with_handler(reply)
    assert digest_of(locate(NAME, base)) == digest_of(zoo / WEIGHTS)
    assert asked[0] is None
    assert asked[1].startswith("bytes=")


def test_weights_of_a_wrong_length(serve, httpserver, zoo):
    base = serve(WEIGHTS)
    data = (zoo / WEIGHTS).read_bytes()
    httpserver.expect_request(f"/zoo/{WEIGHTS}").respond_with_data(data + b"x")
    with pytest.raises(ZooError, match="wrong length"):
        locate(NAME, base)


def test_weights_with_a_wrong_hash(serve, httpserver, zoo, tmp_path):
    base = serve(WEIGHTS)
    data = bytes((zoo / WEIGHTS).stat().st_size)
    httpserver.expect_request(f"/zoo/{WEIGHTS}").respond_with_data(data)
    with pytest.raises(ZooError, match="wrong hash: expected sha256"):
        locate(NAME, base)
    assert not list((tmp_path / "cache").rglob("*.safetensors*.part"))
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_a_card_that_is_not_the_listed_one(serve, httpserver, zoo):
    change(zoo / f"{NAME}.yaml", title="changed after the index")
    with pytest.raises(ZooError, match=r"wrong length|wrong hash"):
        find_card(NAME, serve())


def test_redirects_are_followed(serve, httpserver, zoo):
    base = serve(WEIGHTS)
    headers = {"Location": httpserver.url_for("/elsewhere")}
    httpserver.expect_request(f"/zoo/{WEIGHTS}").respond_with_data("", 302, headers)
    httpserver.expect_request("/elsewhere").respond_with_data((zoo / WEIGHTS).read_bytes())
    assert digest_of(locate(NAME, base)) == digest_of(zoo / WEIGHTS)


def test_weights_that_live_elsewhere(serve, httpserver, zoo):
    data = (zoo / WEIGHTS).read_bytes()
    httpserver.expect_request("/big/any.bin").respond_with_data(data)
    change(zoo / f"{NAME}.yaml", source=httpserver.url_for("/big/any.bin"))
    (zoo / WEIGHTS).unlink()
    path = locate(NAME, str(zoo))
    assert path.read_bytes() == data
    assert path.name == WEIGHTS
    assert locate(NAME, str(zoo)) == path
    assert len(httpserver.log) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema: 1\ncards:\n  ../evil: {sha256: " + "a" * 64 + ", size: 5}\n", "is not an id"),
        ("schema: 1\ncards:\n  evil: {sha256: x, size: 5}\n", "sha256"),
        ("schema: 2\ncards: {}\n", "schema 2"),
        ("<!doctype html><html>Sign in</html>", "index|fresh"),
        ("x" * 300_000, "larger than 250,000 bytes"),
    ],
)
def test_hostile_indexes(httpserver, text, words, tmp_path):
    httpserver.expect_request("/zoo/index.yaml").respond_with_data(text)
    for _ in range(2):  # what was refused must not be found in the cache
        with pytest.raises(ZooError, match=words):
            cards(httpserver.url_for("/zoo"))
    assert not list((tmp_path / "cache").rglob("index.yaml"))


def test_a_bad_index_does_not_replace_a_good_one(serve, httpserver):
    base = serve()
    path = drive(weights(find_card(NAME, base)))
    httpserver.clear()
    httpserver.expect_request("/zoo/index.yaml").respond_with_data("<html>")
    with pytest.raises(ZooError):
        find_card(NAME, base)
    assert locate(NAME, base) == path


@pytest.mark.parametrize("source", ["../../evil.safetensors", "/tmp/evil.safetensors"])
def test_a_card_from_the_web_cannot_leave_the_cache(serve, zoo, tmp_path, source):
    change(zoo / f"{NAME}.yaml", source=source)
    write_index(zoo)
    with pytest.raises(ZooError, match=r"must be the name of a \.safetensors file"):
        locate(NAME, serve())
    assert not list(tmp_path.rglob("evil*"))


def test_a_report_without_end(serve, httpserver, zoo, monkeypatch):
    monkeypatch.setattr("robust0.zoo.fetch.MAX_JSON", 1000)
    found = find_card(NAME, serve())
    with pytest.raises(ZooError, match="larger than 1,000 bytes"):
        drive(attachment(found, "report"))


def test_two_processes_at_once(serve, httpserver, zoo):
    base = serve()
    words = [sys.executable, "-m", "robust0", "zoo", "pull", NAME, "--zoo", base]
    both = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    paths = {Path(out.strip()) for out, _ in outputs}
    assert len(paths) == 1
    assert digest_of(paths.pop()) == read_card(zoo / f"{NAME}.yaml", NAME).sha256
    assert requests(httpserver).count(WEIGHTS) == 1


def test_a_cache_that_cannot_be_written(serve, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROBUST0_CACHE", str(tmp_path / "file"))
    with pytest.raises(ZooError, match="cannot write"):
        find_card(NAME, serve())


# --- the hub, played by a server on this machine -------------------------------------------------


@pytest.fixture
def hub(httpserver, zoo, tmp_path, monkeypatch):
    endpoint = httpserver.url_for("").rstrip("/")
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def start(*left_out):
        for path in zoo.iterdir():
            if path.name not in left_out:
                headers = {"ETag": f'"{digest_of(path)}"', "X-Repo-Commit": COMMIT}
                url = f"/me/zoo/resolve/{COMMIT}/{path.name}"
                httpserver.expect_request(url).respond_with_data(path.read_bytes(), headers=headers)
        return f"hf-hub:me/zoo@{COMMIT}"

    return start


def test_a_model_from_the_hub_and_again_without_it(hub, httpserver, zoo, monkeypatch):
    root = hub()
    events = list(weights(find_card(NAME, root)))
    assert events[-1].done == events[-1].total == (zoo / WEIGHTS).stat().st_size
    assert [card.id for card in cards(root)[0]] == [NAME]
    asked = len(httpserver.log)
    monkeypatch.setenv("ROBUST0_OFFLINE", "1")
    assert digest_of(locate(NAME, root)) == digest_of(zoo / WEIGHTS)
    assert len(httpserver.log) == asked


def test_weights_of_the_hub_are_verified(hub, zoo):
    path = zoo / WEIGHTS
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(ZooError, match=r"has sha256 .* its card says"):
        locate(NAME, hub())


def test_a_repository_that_is_no_zoo(hub, httpserver):
    root = hub("index.yaml")
    missing = Response(status=404, headers={"X-Error-Code": "EntryNotFound"})
    url = f"/me/zoo/resolve/{COMMIT}/index.yaml"
    httpserver.expect_request(url).respond_with_response(missing)
    with pytest.raises(ZooError, match=r"has no index\.yaml"):
        locate(NAME, root)


@pytest.mark.parametrize("code", ["RepoNotFound", "RevisionNotFound", "GatedRepo"])
def test_refusals_of_the_hub(hub, httpserver, code):
    root = hub("index.yaml")
    status = 403 if code == "GatedRepo" else 404
    reply = Response(status=status, headers={"X-Error-Code": code})
    httpserver.expect_request(f"/me/zoo/resolve/{COMMIT}/index.yaml").respond_with_response(reply)
    with pytest.raises(ZooError, match="the hub has no public"):
        locate(NAME, root)


def test_the_hub_out_of_reach(hub, monkeypatch):
    root = hub()
    monkeypatch.setenv("ROBUST0_OFFLINE", "1")
    with pytest.raises(ZooError, match="cannot be reached, the cache lacks it"):
        locate(NAME, root)
