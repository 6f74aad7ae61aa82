"""YAML text to a tree: strict about what a recipe may contain, and aware of lines and comments.

Safe loading only. Scalars follow YAML 1.2 (``1e-3`` is a number, ``010`` is ten, ``yes`` a word);
anchors, aliases, tags, duplicate keys, NaN and infinities are refused with their line.
"""

import math
import re
from pathlib import Path
from typing import NoReturn

import yaml
from yaml.events import AliasEvent, Event, NodeEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from robust0.errors import RecipeError
from robust0.files import read_regular
from robust0.recipes.tree import Branch, Leaf, Origin, Tree

MAX_BYTES = 250_000
MAX_DEPTH = 20
_CORE = "tag:yaml.org,2002:"
_FLOAT = re.compile(
    r"""^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?
    |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
_INTEGER = re.compile(r"^[-+]?[0-9]+$")
_TRUTH = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
_RESOLVERS = (
    ("bool", _TRUTH, "tTfF"),
    ("int", _INTEGER, "-+0123456789"),
    ("float", _FLOAT, "-+.0123456789"),
    ("null", _NULL, ("~", "n", "N", "")),
)
_STRANGE_TAG = "tags such as !!python are not allowed"


class _Refusal(yaml.YAMLError):
    """A construct that recipes do not use."""

    def __init__(self, problem: str, event: Event) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = event.start_mark.line + 1 if event.start_mark else 1


class _Loader(yaml.SafeLoader):
    """Composes nodes without aliases, tags or deep nesting; scalars resolve as in YAML 1.2."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, AliasEvent) or (isinstance(event, NodeEvent) and event.anchor):
            raise _Refusal("anchors and aliases are not allowed", event)
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _Refusal(f"{_STRANGE_TAG} (got {tag})", event)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Refusal(f"nested deeper than {MAX_DEPTH} levels", event)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    """Quotes every string that this reader, or a YAML 1.1 reader, would take for something else."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


for _name, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(_CORE + _name, _pattern, list(_first))
    _Dumper.add_implicit_resolver(_CORE + _name, _pattern, list(_first))


def read_file(path: Path) -> Branch:
    """The tree of a recipe file."""
    try:
        data = read_regular(path, MAX_BYTES)
    except FileNotFoundError as problem:
        raise RecipeError(
            f"the recipe file {path} does not exist",
            "check the path; `robust0 recipe list` shows names",
        ) from problem
    except OSError as problem:
        raise RecipeError(
            f"cannot read the recipe file {path}: {problem.strerror or problem}",
            "give a readable YAML file of a recipe",
        ) from problem
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise RecipeError(
            f"{path} is not UTF-8 text (byte {problem.start})", "save the recipe as UTF-8"
        ) from problem
    tree = read_text(text, path.name)
    if not isinstance(tree, dict):
        raise RecipeError(
            f"{path.name}: a recipe must be a mapping, got {_describe(tree)}",
            "start with the line `schema: 1`",
        )
    return tree


def read_text(text: str, where: str) -> Tree:
    """The tree of YAML text; ``where`` names it in messages and origins."""
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
        comments = _comments(text)
    except _Refusal as problem:
        raise RecipeError(
            f"{where}:{problem.line}: {problem.problem}", "write plain keys and values"
        ) from problem
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise RecipeError(
            f"{where}{line}: not valid YAML: {problem.problem or problem.context}",
            "check indentation, quotes and brackets near that line",
        ) from problem
    except yaml.YAMLError as problem:
        raise RecipeError(
            f"{where}: not valid YAML: {str(problem).splitlines()[0]}", "save it as plain text"
        ) from problem
    if root is None:
        raise RecipeError(f"{where} is empty", "start with the line `schema: 1`")
    return _Planter(where, comments).plant(root, "", "")


def dump(values: object) -> str:
    """Plain values as YAML text that ``read_text`` reads back unchanged."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=False)


class _Planter:
    """Turns nodes into trees; a comment holds for the line it ends and for what is nested below."""

    def __init__(self, where: str, comments: dict[int, str]) -> None:
        self.where = where
        self.comments = comments

    def plant(self, node: Node, path: str, inherited: str) -> Tree:
        """The tree of a node; ``path`` is the dotted key so far."""
        note = self.comments.get(node.end_mark.line, "") or inherited
        if isinstance(node, MappingNode):
            return self._mapping(node, path, inherited)
        if isinstance(node, SequenceNode):
            items = [self.plant(item, f"{path}[{n}]", note) for n, item in enumerate(node.value)]
            if all(isinstance(item, Leaf) for item in items):
                values = [item.value for item in items if isinstance(item, Leaf)]
                return Leaf(values, self._origin(node, note))
            return items
        return Leaf(self._scalar(node, path), self._origin(node, note))

    def _mapping(self, node: MappingNode, path: str, inherited: str) -> Branch:
        result: Branch = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key_node, ScalarNode) or key_node.tag != _CORE + "str":
                self._refuse(key_node, f"a key under {path or 'the top'} is not a word", "quote it")
            here = f"{path}.{key}" if path else key
            if key in result:
                self._refuse(key_node, f"the key {here} is given twice", "keep one of the two")
            note = self.comments.get(key_node.end_mark.line, "") or inherited
            result[key] = self.plant(value_node, here, note)
        return result

    def _scalar(self, node: Node, path: str) -> object:
        text = str(node.value)
        kind = node.tag.removeprefix(_CORE)
        if kind == "int":
            if len(text.lstrip("+-")) > 18:
                self._refuse(
                    node, f"{path or 'the value'} is too large an integer", "use fewer digits"
                )
            return int(text)
        if kind == "float":
            return self._number(node, text, path)
        if kind == "bool":
            return text.lower() == "true"
        return None if kind == "null" else text

    def _number(self, node: Node, text: str, path: str) -> float:
        lowered = text.lower()
        number = math.nan if lowered.endswith(("inf", "nan")) else float(text)
        if not math.isfinite(number):
            self._refuse(
                node, f"{path or 'the value'} is {text}, not a finite number", "write a number"
            )
        return number

    def _origin(self, node: Node, note: str) -> Origin:
        return Origin(self.where, note, self.where, node.start_mark.line + 1)

    def _refuse(self, node: Node, problem: str, hint: str) -> NoReturn:
        raise RecipeError(f"{self.where}:{node.start_mark.line + 1}: {problem}", hint)


def _comments(text: str) -> dict[int, str]:
    """Line number (from 0) to the comment behind the last token of that line."""
    ends: dict[int, int] = {}
    inside: set[int] = set()
    for token in yaml.scan(text, Loader=_Loader):
        start, end = token.start_mark, token.end_mark
        inside.update(range(start.line, end.line))
        ends[end.line] = max(ends.get(end.line, 0), end.column)
    result = {}
    for number, line in enumerate(re.split("\r\n|[\n\r\x85\u2028\u2029]", text)):
        if ends.get(number, 0) > 0 and number not in inside:
            rest = line[ends[number] :]
            body = rest.lstrip()
            if body.startswith("#") and body != rest:
                result[number] = body.lstrip("# ").strip()
    return result


def _describe(tree: Tree) -> str:
    if isinstance(tree, Leaf) and not isinstance(tree.value, list):
        return repr(tree.value)
    return "a list"
