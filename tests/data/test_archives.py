import io
import tarfile
import zipfile

import pytest

from robust0.data import archives
from robust0.errors import DataError


def add(tar, name, content=b"x", **facts):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in facts.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(content))


def test_untar_takes_only_the_named_files_and_stays_inside(tmp_path):
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        add(tar, "../../outside/wanted", b"yes")
        add(tar, "package/other", b"no")
    archives.untar(archive, ["wanted"], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["wanted"]
    assert (tmp_path / "out" / "wanted").read_bytes() == b"yes"


def test_untar_does_not_follow_links(tmp_path):
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        add(tar, "wanted", b"", type=tarfile.SYMTYPE, linkname="/etc/hostname")
    with pytest.raises(DataError, match="lacks wanted"):
        archives.untar(archive, ["wanted"], tmp_path / "out")


def test_cut_and_foreign_archives_are_refused(tmp_path):
    archive = tmp_path / "a.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        add(tar, "wanted", bytes(range(256)) * 400)
    archive.write_bytes(archive.read_bytes()[:300])
    with pytest.raises(DataError, match="not a whole archive"):
        archives.untar(archive, ["wanted"], tmp_path / "out")
    archive.write_bytes(b"<html>")
    with pytest.raises(DataError, match="not a whole archive"):
        archives.untar(archive, ["wanted"], tmp_path / "out")
    with pytest.raises(DataError, match="not a whole archive"):
        archives.unzip(archive, tmp_path / "out")


def test_bombs_are_refused_before_they_unpack(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_MOST_BYTES", 1000)
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("zeros", bytes(10_000))
    with pytest.raises(DataError, match="unpacks to 10000 bytes"):
        archives.unzip(tmp_path / "b.zip", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        add(tar, "zeros", bytes(10_000))
    with pytest.raises(DataError, match="unpacks to 10000 bytes"):
        archives.untar(tmp_path / "b.tar", ["zeros"], tmp_path / "out")
