import json

import numpy as np
import pytest

from robust0.data import store
from robust0.data.places import is_decoded
from robust0.data.store import Arrays
from robust0.errors import DataError

ARRAYS = Arrays(np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3), np.array([1], np.uint8))


def test_what_is_saved_is_loaded(tmp_path):
    store.save(tmp_path / "a", "toy", {"test": ARRAYS}, "here")
    assert is_decoded(tmp_path / "a")
    loaded = store.load_arrays(tmp_path / "a", "toy", "test")
    assert np.array_equal(loaded.images, ARRAYS.images)
    assert np.array_equal(loaded.labels, ARRAYS.labels)


def test_a_half_written_dataset_does_not_count(tmp_path, monkeypatch):
    store.save(tmp_path, "toy", {"test": ARRAYS}, "here")

    def fail(*_):
        raise OSError(28, "No space left on device", "x.npy")

    monkeypatch.setattr(store, "_write_array", fail)
    with pytest.raises(DataError, match="No space left"):
        store.save(tmp_path, "toy", {"test": ARRAYS}, "here")
    assert not is_decoded(tmp_path)


@pytest.mark.parametrize(
    "damage", ["manifest cut", "no split", "array cut", "pickle", "array gone", "schema"]
)
def test_damage_is_refused(tmp_path, damage):
    store.save(tmp_path, "toy", {"test": ARRAYS}, "here")
    manifest, images = tmp_path / "decoded.json", tmp_path / "test_images.npy"
    if damage == "manifest cut":
        manifest.write_text(manifest.read_text()[:20])
    elif damage == "no split":
        manifest.write_text(json.dumps({"schema": 1, "name": "toy", "sha256": {}}))
    elif damage == "array cut":
        images.write_bytes(images.read_bytes()[:-1])
    elif damage == "pickle":
        np.save(images, np.array([{}]), allow_pickle=True)
    elif damage == "array gone":
        images.unlink()
    else:
        manifest.write_text(manifest.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(DataError, match="cannot be read"):
        store.load_arrays(tmp_path, "toy", "test")
