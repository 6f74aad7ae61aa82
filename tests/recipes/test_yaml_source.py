import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robust0.errors import RecipeError
from robust0.recipes.tree import Leaf, leaves, plain
from robust0.recipes.yaml_source import MAX_BYTES, MAX_DEPTH, dump, read_file, read_text

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(
        ["1e-3", "1e5", "010", "yes", "null", "~", ".nan", "0x1F", "1:30", "2020-01-01"]
    )
)
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1E+2", 100.0),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("12", 12),
        ("010", 10),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("yes", "yes"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("2020-01-01", "2020-01-01"),
        ("e3", "e3"),
        ("'1e-3'", "1e-3"),
        ("[1, 2e1]", [1, 20.0]),
    ],
)
def test_scalars_resolve_as_in_yaml_1_2(text, value):
    found = plain(read_text(text, "t"))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\na: 2\n", 2, "key a is given twice"),
        ("x:\n  b: 1\n  b: 1\n", 3, "key x.b is given twice"),
        ("a: .nan\n", 1, "a is .nan"),
        ("a: [1, -.inf]\n", 1, "a[1] is -.inf"),
        ("a:\n  b: 1e999\n", 2, "a.b is 1e999"),
        ("a: 1\nb: !!python/object/apply:os.system [ls]\n", 2, "tags such as"),
        ("b: !!int 3\n", 1, "tags such as"),
        ("a: &x [1]\nb: *x\n", 1, "anchors and aliases"),
        ("a: 1\n1: 2\n", 2, "not a word"),
        ("? [a]\n: 2\n", 1, "not a word"),
        ("a: [1\n", 2, "not valid YAML"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML"),
        ("a: 1\n\tb: 2\n", 2, "not valid YAML"),
        ("a: 1" + "0" * 30 + "\n", 1, "too large an integer"),
        ("a: " + "[" * (MAX_DEPTH + 1), 1, "nested deeper"),
    ],
)
def test_refusals_name_the_line(text, line, words):
    with pytest.raises(RecipeError) as refusal:
        read_text(text, "t.yaml")
    assert refusal.value.message.startswith(f"t.yaml:{line}: ")
    assert words in refusal.value.message
    assert refusal.value.hint
    assert "\n" not in refusal.value.message


def test_an_alias_bomb_is_refused_at_its_first_anchor():
    bomb = "a: &a [x, x]\n" + "".join(
        f"{name}: &{name} [*{last}, *{last}]\n"
        for last, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(RecipeError, match="t:1: anchors"):
        read_text(bomb, "t")


def test_a_hundred_thousand_brackets_do_not_exhaust_the_stack():
    with pytest.raises(RecipeError, match="nested deeper"):
        read_text("[" * 100_000, "t")


@pytest.mark.parametrize("text", ["", "# only a remark\n"])
def test_an_empty_text_is_refused(text):
    with pytest.raises(RecipeError, match="t is empty"):
        read_text(text, "t")


def test_comments_become_notes_of_their_line_and_of_what_is_nested_below():
    text = (
        "# a remark of its own\n"
        "a: 1   # Table 1\n"
        "b: 'x # no remark'\n"
        "c: {d: 2, e: [3, 4]}  # Sec. 2\n"
        "f:  # inherited\n"
        "  g: 5\n"
        "  h: 6  # own\n"
        "i: |  # not read\n"
        "  text # inside\n"
        "   # after\n"
        "j: [1,\n"
        "  2]  # last line\n"
        "k: a#b\n"
    )
    notes = {".".join(path): leaf.origin.note for path, leaf in leaves(read_text(text, "t"))}
    assert notes == {
        "a": "Table 1",
        "b": "",
        "c.d": "Sec. 2",
        "c.e": "Sec. 2",
        "f.g": "inherited",
        "f.h": "own",
        "i": "",
        "j": "last line",
        "k": "",
    }


def test_origins_carry_file_and_line():
    tree = read_text("a:\n  b: 1\n", "t.yaml")
    ((_, leaf),) = leaves(tree)
    assert isinstance(leaf, Leaf)
    assert leaf.origin.place == "t.yaml:2"


@given(documents)
def test_dump_then_read_gives_the_same_value(value):
    found = plain(read_text(dump({"x": value}), "t"))
    assert found == {"x": value}
    assert repr(found) == repr({"x": value})  # 1, 1.0 and True are equal but not the same


def test_dump_does_not_share_equal_parts():
    part = [1.5]
    assert "&" not in dump({"a": part, "b": part})
    assert math.isclose(plain(read_text(dump({"a": 1e-5}), "t"))["a"], 1e-5)


def test_files_that_are_not_recipes(tmp_path):
    def refusal(path):
        with pytest.raises(RecipeError) as caught:
            read_file(path)
        return caught.value.message

    assert "does not exist" in refusal(tmp_path / "none.yaml")
    assert "cannot read" in refusal(tmp_path)
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    assert "not UTF-8" in refusal(binary)
    large = tmp_path / "l.yaml"
    large.write_bytes(b"#" * (MAX_BYTES + 1))
    assert "bytes" in refusal(large)
    control = tmp_path / "c.yaml"
    control.write_bytes(b"a: \x00\n")
    assert "not valid YAML" in refusal(control)
    for text in ("5\n", "[a]\n", "---\n"):
        listed = tmp_path / "list.yaml"
        listed.write_text(text)
        assert "must be a mapping" in refusal(listed)
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    assert "cannot read" in refusal(loop)
