import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robust0.auditing.attempts import Attempts, merged, read_attempts, write_attempts
from robust0.errors import RunError
from robust0.threats import Threat
from robust0.threats.perturbation import Perturbation

SHAPE = (3, 4, 5)


@st.composite
def collections(draw):
    unit = draw(st.sampled_from(["pixel", "feature"]))
    groups, total = (3, 20) if unit == "pixel" else (1, 60)
    keys = draw(
        st.lists(
            st.tuples(st.integers(1, 20), st.sampled_from(["a", "b-c"]), st.integers(0, 2**40)),
            unique=True,
            max_size=5,
        )
    )
    found = {}
    for key in keys:
        sites = draw(st.lists(st.integers(0, total - 1), unique=True, max_size=6))
        values = draw(st.lists(st.floats(0, 1, width=32), min_size=groups * len(sites),
                               max_size=groups * len(sites)))  # fmt: skip
        array = np.array(values, np.float32).reshape(len(sites), groups)
        found[key] = Perturbation(np.array(sites, np.int32), array)
    return Attempts(unit, SHAPE, found)


@given(collections())
@settings(max_examples=50, deadline=None)
def test_what_is_written_is_read(tmp_path_factory, attempts):
    path = tmp_path_factory.mktemp("attempts") / "a.safetensors"
    write_attempts(path, attempts)
    back = read_attempts(path)
    assert (back.unit, back.image_shape, list(back.found)) == (
        attempts.unit, SHAPE, list(attempts.found),
    )  # fmt: skip
    for key, item in attempts.found.items():
        assert np.array_equal(back.found[key].places, item.places)
        assert np.array_equal(back.found[key].values, item.values)


@pytest.mark.parametrize("unit", ["pixel", "feature", "row", "column", "patch:2"])
def test_any_threat_is_stored_and_painted_back(tmp_path, unit):
    draws = torch.Generator().manual_seed(1)
    clean, other = torch.rand(2, 3, 4, 6, generator=draws)
    threat = Threat.of(2, unit)
    before, after = threat.view(clean[None]), threat.view(other[None])
    before[:, :, [0, 2]] = after[:, :, [0, 2]]
    attacked = threat.image(before, (3, 4, 6))[0]
    kept = Attempts(unit, (3, 4, 6), {(2, "a", 0): threat.encode(clean, attacked)})
    write_attempts(tmp_path / "a.safetensors", kept)
    back = read_attempts(tmp_path / "a.safetensors")
    assert np.array_equal(back.paint((2, "a", 0), clean.numpy()), attacked.numpy())
    assert back.found[2, "a", 0].fits((3, 4, 6))


def test_files_are_merged(tmp_path):
    one = Perturbation(np.array([1], np.int32), np.zeros((1, 3), np.float32))
    for number in range(3):
        write_attempts(
            tmp_path / f"{number}.safetensors",
            Attempts("pixel", SHAPE, {(3, "a", number): one, (3, "a", number + 1): one}),
        )
    assert set(merged(sorted(tmp_path.iterdir()))) == {(3, "a", n) for n in range(4)}


@pytest.mark.parametrize("content", [b"", b"junk", b"\x10" + bytes(30)])
def test_damaged_files_are_refused(tmp_path, content):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"a\.safetensors"):
        read_attempts(path)


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, tmp_path / "x.safetensors")
    with pytest.raises(RunError, match="cannot be read"):
        read_attempts(tmp_path / "x.safetensors")
