"""Small YAML and JSON files of a zoo: untrusted, so size, aliases and duplicate keys are checked.

No torch here.
"""

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from yaml.events import AliasEvent, NodeEvent
from yaml.nodes import MappingNode, Node, ScalarNode

from robust0.errors import ZooError
from robust0.files import read_regular

MAX_YAML = 250_000  # bytes of a card, an index or the user's settings
MAX_JSON = 20_000_000  # bytes of a report or of verdicts
_MAX_DEPTH = 20
_HINT = "correct it, or use another zoo"
M = TypeVar("M", bound=BaseModel)
Upgrade = Callable[[Any], Any]


def _unchanged(document: Any) -> Any:  # noqa: ANN401 - a parsed document
    return document


class _Refusal(yaml.YAMLError):
    """A construct that these files do not use."""


class _Loader(yaml.SafeLoader):
    """Plain values only: no aliases, no tags, no duplicate keys, no deep nesting."""

    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, AliasEvent) or (isinstance(event, NodeEvent) and event.anchor):
            raise _Refusal("anchors and aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise _Refusal("tags are not allowed")
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _Refusal(f"nested deeper than {_MAX_DEPTH} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        if isinstance(node, MappingNode):
            self._check_keys(node)
        return node

    def _check_keys(self, node: MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise _Refusal("a key is not a word")
            if key.value in seen:
                raise _Refusal(f"the key {key.value[:60]!r} is given twice")
            seen.add(key.value)


def read_yaml(path: Path, model: type[M], upgrade: Upgrade = _unchanged) -> M:
    """A YAML file as the model it claims to be; ``upgrade`` turns older forms into the present."""
    try:
        document = yaml.load(_text(path, MAX_YAML), Loader=_Loader)  # noqa: S506 - a SafeLoader
        # Through JSON, in strict mode: lists become tuples, dates are read, nothing else is bent.
        text = json.dumps(upgrade(document), default=_date, allow_nan=False)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as problem:
        raise ZooError(f"{path} is not valid YAML: {_one_line(problem)}", _HINT) from problem
    if isinstance(document, dict) and "schema_version" in model.model_fields:
        newest = model.model_fields["schema_version"].default
        oldest = newest if upgrade is _unchanged else 1
        _check_schema(path, document.get("schema"), newest, oldest)
    return _validated(path, text, model, strict=True)


def read_json(path: Path, model: type[M], upgrade: Upgrade) -> M:
    """A JSON file as the model it claims to be; ``upgrade`` turns older forms into the present."""
    text = _text(path, MAX_JSON)
    try:
        text = json.dumps(upgrade(json.loads(text)))
    except (ValueError, RecursionError) as problem:
        raise ZooError(f"{path} is not valid JSON: {_one_line(problem)}", _HINT) from problem
    return _validated(path, text, model, strict=False)


def write_yaml(values: BaseModel) -> str:
    """A model as YAML that ``read_yaml`` reads back unchanged."""
    document = values.model_dump(mode="json", by_alias=True)
    return yaml.safe_dump(document, sort_keys=False, width=100, allow_unicode=True)


def _validated(path: Path, text: str, model: type[M], *, strict: bool) -> M:
    try:
        return model.model_validate_json(text, strict=strict)
    except ValidationError as problem:
        found = [
            f"{path}: {_one_line('.'.join(map(str, error['loc'])) or 'the whole')}: "
            f"{_one_line(error['msg'])}"
            for error in problem.errors(include_url=False, include_input=False)
        ]
        raise ZooError(found[0], _HINT, found) from problem


def _check_schema(path: Path, schema: Any, newest: int, oldest: int) -> None:  # noqa: ANN401
    if type(schema) is int and schema > newest:
        raise ZooError(
            f"{path} has schema {schema}, this robust0 reads {newest}",
            "upgrade: pip install --upgrade robust0",
        )
    if type(schema) is not int or schema < oldest:  # True equals 1
        raise ZooError(f"{path} does not say schema: {newest}", _HINT)


def _text(path: Path, limit: int) -> str:
    try:
        return read_regular(path, limit).decode("utf-8-sig")
    except OSError as problem:
        raise ZooError(
            f"cannot read {path}: {problem.strerror or problem}", "check the path of the zoo"
        ) from problem
    except UnicodeDecodeError as problem:
        raise ZooError(f"{path} is not UTF-8 text", _HINT) from problem


def _date(value: object) -> str:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} has no place here")


def _one_line(text: object) -> str:
    shown = "".join(letter if letter.isprintable() else " " for letter in str(text))
    return " ".join(shown.split())[:300]
