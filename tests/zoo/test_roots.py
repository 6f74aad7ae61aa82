import pytest

from robust0.errors import ZooError
from robust0.zoo.roots import Folder, Hub, Web, open_root

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_the_shipped_zoo_is_the_default():
    root = open_root()
    assert isinstance(root, Folder)
    assert root.name == "shipped"
    assert (root.path / "README.md").is_file()


def test_the_command_line_wins_over_the_variable_over_the_settings(tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "config.yaml").write_text(f"zoo: {tmp_path / 'c'}\nother: 1\n")
    assert open_root().path == tmp_path / "c"
    monkeypatch.setenv("ROBUST0_ZOO", str(tmp_path / "b"))
    assert open_root().path == tmp_path / "b"
    assert open_root(str(tmp_path / "a")).path == tmp_path / "a"
    assert open_root("shipped").name == "shipped"


def test_kinds_of_roots():
    assert open_root("https://example.org/zoo/") == Web("https://example.org/zoo")
    assert open_root(f"hf-hub:me/zoo@{COMMIT}") == Hub("me/zoo", COMMIT)
    assert open_root("https://example.org/a").cache != open_root("https://example.org/b").cache


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("hf-hub:me/zoo", "not pinned to a commit", "40 hex digits"),
        ("hf-hub:me/zoo@main", "not pinned to a commit", "branches move"),
        (f"hf-hub:me/zoo@{COMMIT[:-1]}", "not pinned", "hf-hub:me/zoo@"),
        (f"hf-hub:zoo@{COMMIT}", "is not hf-hub:OWNER/REPO@COMMIT", "spelling"),
        ("http://example.org/zoo", "is not the address of a zoo", "https://"),
        ("https://me:secret@example.org", "is not the address of a zoo", "login"),
        ("file:///tmp", "is not the address", "https://"),
        ("/no/such/folder", "there is no zoo", "folder"),
    ],
)
def test_roots_that_are_refused(text, words, hint):
    with pytest.raises(ZooError, match=words) as refusal:
        open_root(text)
    assert hint in refusal.value.hint


def test_settings_that_cannot_be_read(tmp_path):
    (tmp_path / "config.yaml").write_text("zoo: [a, b]\n")
    with pytest.raises(ZooError, match="zoo: Input should be a valid string"):
        open_root()
