import io
import os
import pickle
import struct

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from robust0.errors import ModelError
from robust0.models.checkpoint import load_checkpoint, read_metadata
from robust0.models.header import MAX_HEADER, one_line, parse_header, read_bytes, read_header


def refusal(path):
    """The message and hint with which every reader refuses this file."""
    with pytest.raises(ModelError) as whole:
        load_checkpoint(path)
    with pytest.raises(ModelError) as head:
        read_metadata(path)
    assert whole.value.message == head.value.message
    assert whole.value.hint
    assert "\n" not in whole.value.message
    return whole.value.message, whole.value.hint


def torch_file(**options):
    buffer = io.BytesIO()
    torch.save({"weight": torch.zeros(3)}, buffer, **options)
    return buffer.getvalue()


FOREIGN = {
    "zip archive": torch_file(),
    "a Python pickle": torch_file(_use_new_zipfile_serialization=False),
    "a Python pickle,": pickle.dumps({"weight": [0.0] * 100}),
    "web page": b"\n<!DOCTYPE html><html><body>Sign in</body></html>",
    "web page,": b'<?xml version="1.0"?><Error>AccessDenied</Error>',
    "git-LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "NumPy": b"\x93NUMPY\x01\x00" + bytes(100),
}


@pytest.mark.parametrize(("words", "data"), FOREIGN.items())
def test_other_formats_are_named(words, data, tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(data)
    assert words in refusal(path)[0]


def test_a_pickle_is_sent_to_the_converter(tmp_path):
    path = tmp_path / "renamed.safetensors"
    path.write_bytes(torch_file())
    assert "robust0 zoo convert" in refusal(path)[1]


def test_a_missing_file(tmp_path):
    assert "no checkpoint at" in refusal(tmp_path / "gone.safetensors")[0]


def test_an_empty_file(tmp_path):
    path = tmp_path / "empty.safetensors"
    path.touch()
    assert "is empty" in refusal(path)[0]


def test_a_directory(tmp_path):
    message, hint = refusal(tmp_path)
    assert "is a directory" in message
    assert "local-dir:" in hint


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refusal(tmp_path / "pipe")[0]


def test_a_loop_of_links(tmp_path):
    path = tmp_path / "loop.safetensors"
    path.symlink_to(path)
    assert "cannot read" in refusal(path)[0]


def test_a_file_that_may_not_be_read(thin_path, unprivileged):
    thin_path.chmod(0)
    with unprivileged():
        message, hint = refusal(thin_path)
    assert "cannot read" in message
    assert "permissions" in hint


@pytest.mark.parametrize("size", [1, 7])
def test_cut_off_in_the_length_word(size, thin_path):
    thin_path.write_bytes(thin_path.read_bytes()[:size])
    assert "cut off in its first 8 bytes" in refusal(thin_path)[0]


@pytest.mark.parametrize("size", [8, 9, 500])
def test_cut_off_in_the_header(size, thin_path):
    thin_path.write_bytes(thin_path.read_bytes()[:size])
    assert "cut off in its header" in refusal(thin_path)[0]


@pytest.mark.parametrize("missing", [1, 1000])
def test_cut_off_in_the_tensors(missing, thin_path):
    thin_path.write_bytes(thin_path.read_bytes()[:-missing])
    assert "cut off in its tensors" in refusal(thin_path)[0]


def test_bytes_after_the_tensors(thin_path):
    thin_path.write_bytes(thin_path.read_bytes() + b"more")
    assert "4 bytes after its last tensor" in refusal(thin_path)[0]


@pytest.mark.parametrize("length", [MAX_HEADER + 1, 2**63, 2**64 - 1])
def test_a_header_beyond_the_limit(length, thin_path):
    thin_path.write_bytes(struct.pack("<Q", length) + thin_path.read_bytes()[8:])
    assert "limit is 100000000" in refusal(thin_path)[0]


def test_a_header_longer_than_the_file(thin_path):
    thin_path.write_bytes(struct.pack("<Q", 50_000_000) + thin_path.read_bytes()[8:])
    assert "cut off in its header: expected 50000000 bytes" in refusal(thin_path)[0]


@pytest.mark.parametrize(
    ("shift", "words"), [(-4, "overlaps the one before it"), (4, "follows a hole")]
)
def test_overlaps_and_holes(shift, words, editor):
    for entry in list(editor.header.values())[5:]:
        entry["data_offsets"] = [offset + shift for offset in entry["data_offsets"]]
    editor.buffer = editor.buffer[:shift] if shift < 0 else editor.buffer + bytes(shift)
    assert words in refusal(editor.write())[0]


def test_a_dtype_that_is_not_one(editor):
    editor.header["conv1.weight"]["dtype"] = "F33"
    message, _ = refusal(editor.write())
    assert "'conv1.weight'" in message
    assert "unknown dtype 'F33'" in message


def test_a_shape_that_does_not_fit_its_bytes(editor):
    editor.header["conv1.weight"]["shape"] = [8, 3, 3, 4]
    assert "does not fit its 864 bytes" in refusal(editor.write())[0]


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [-8, -3, 3, 3]},
        {"shape": [8, 3, 3, 3.0]},
        {"shape": [8, 3, 3, True]},
        {"shape": [2**80]},
        {"shape": "8"},
        {"shape": [1] * 1000},
        {"data_offsets": [0]},
        {"data_offsets": [0, 1, 2]},
        {"data_offsets": ["0", "864"]},
        {"more": 1},
        {"dtype": ["F32"]},
    ],
)
def test_entries_that_are_not_well_formed(change, editor):
    editor.header["conv1.weight"].update(change)
    assert "'conv1.weight'" in refusal(editor.write())[0]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"{", "not valid JSON"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": {}, "a": {}}', "a key occurs twice"),
        (b'{"a":' * 100_000, "not valid JSON"),
        (b'{"a": 1}', "'a'"),
        (b'{"a": {}}', "'a'"),
        (b'{"__metadata__": 1}', "__metadata__"),
        (b'{"__metadata__": {"a": 1}}', "__metadata__"),
        (b'{"\x80": 1}', "not valid JSON"),
        (b"[1, 2, 3]", "not a safetensors file"),
        (b"", "not a safetensors file"),
    ],
)
def test_headers_that_are_not_well_formed(header, words, editor):
    assert words in refusal(editor.write(header))[0]


def test_hostile_names_cannot_reach_the_terminal(editor):
    editor.header["\x1b[2Jevil\n" + "x" * 5000] = {"dtype": "Q"}
    message, _ = refusal(editor.write())
    assert "\x1b" not in message
    assert len(message) < 400


def test_whole_and_partial_reading_agree(thin_path):
    assert parse_header(read_bytes(thin_path), thin_path) == read_header(thin_path)


def test_one_line_keeps_ordinary_text():
    assert one_line("a  b\n\tc") == "a b c"
    assert one_line("\x1b[0m") == " [0m"
    assert len(one_line("x" * 1000)) == 160


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_any_bytes_are_refused_in_our_words(data, tmp_path):
    with pytest.raises(ModelError):
        parse_header(data, tmp_path)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_we_accept_the_library_accepts(data, tmp_path):
    """A small file with any byte changed: never another exception, never laxer than safetensors."""
    good = save_tensors({"a": torch.ones(2, 3), "b": torch.tensor(7)}, {"format": "pt"})
    place = data.draw(st.integers(0, len(good) - 1))
    spoilt = bytearray(good)
    spoilt[place] = data.draw(st.integers(0, 255))
    try:
        header = parse_header(bytes(spoilt), tmp_path)
    except ModelError:
        return
    try:
        tensors = load_tensors(bytes(spoilt))
    except SafetensorError as error:
        pytest.fail(f"accepted what safetensors refuses: {error}")
    assert {name: tuple(value.shape) for name, value in tensors.items()} == {
        name: entry.shape for name, entry in header.tensors.items()
    }
