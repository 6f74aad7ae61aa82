import pytest

from robust0.errors import RecipeError
from robust0.recipes.tree import DEFAULT, Leaf, Origin, branch, grow, leaves, merge, plain, relabel


def over(lower, upper):
    low, up = grow(lower, Origin("low")), grow(upper, Origin("up"))
    merged = merge(branch(low, ()), branch(up, ()))
    return plain(merged), {".".join(path): leaf.origin.where for path, leaf in leaves(merged)}


def test_mappings_merge_key_by_key_and_lists_are_replaced():
    values, origins = over({"a": {"x": 1, "y": [1, 2]}, "b": 3}, {"a": {"y": [9]}, "c": 4})
    assert values == {"a": {"x": 1, "y": [9]}, "b": 3, "c": 4}
    assert origins == {"a.x": "low", "a.y": "up", "b": "low", "c": "up"}


def test_another_kind_replaces_the_whole_mapping():
    lower = {"o": {"kind": "sgd", "momentum": 0.9}}
    assert over(lower, {"o": {"kind": "adamw"}})[0] == {"o": {"kind": "adamw"}}
    assert over(lower, {"o": {"kind": "sgd", "lr": 1}})[0]["o"]["momentum"] == 0.9
    assert over(lower, {"o": {"lr": 1}})[0]["o"] == {"kind": "sgd", "momentum": 0.9, "lr": 1}


def test_a_threat_is_replaced_whole_at_any_depth():
    values, _ = over(
        {"training": {"threat": {"pixels": 3}}}, {"training": {"threat": {"features": 9}}}
    )
    assert values == {"training": {"threat": {"features": 9}}}


def test_the_size_of_a_patch_joins_its_number():
    size, number = {"threat": {"patch_size": 4}}, {"threat": {"patches": 2}}
    both = {"threat": {"patches": 2, "patch_size": 4}}
    assert over(size, number)[0] == over(number, size)[0] == both
    assert over({"threat": {"pixels": 20, "features": None}}, both)[0] == both


def test_another_model_drops_the_arguments_of_the_first():
    lower = {"model": {"name": "a", "args": {"depth": 3}}}
    assert over(lower, {"model": {"name": "b"}})[0] == {"model": {"name": "b"}}
    assert over(lower, {"model": {"pretrained": True}})[0]["model"]["args"] == {"depth": 3}


def test_merge_leaves_its_inputs_alone():
    lower, upper = {"a": {"x": Leaf(1, DEFAULT)}}, {"a": {"x": Leaf(2, DEFAULT)}}
    merge(lower, upper)
    assert plain(lower) == {"a": {"x": 1}}


def test_relabel_keeps_notes_and_lines():
    origin = Origin("a.yaml", "Table 1", "a.yaml", 3)
    leaf = relabel({"x": [{"y": Leaf(1, origin)}]}, "extends a")["x"][0]["y"]
    assert str(leaf.origin) == "extends a (Table 1)"
    assert leaf.origin.place == "a.yaml:3"


def test_a_value_is_no_mapping():
    with pytest.raises(RecipeError, match=r"a\.b must be a mapping, got 3"):
        branch(Leaf(3, DEFAULT), ("a", "b"))
