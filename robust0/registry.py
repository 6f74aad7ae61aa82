"""Whatever a recipe can name: one frozen dataclass per component, found here by its kind.

A component declares each setting once, with its default, a description and where the default comes
from. Users add their own through an entry point, or name them as ``package.module:Name``.
"""

import difflib
import importlib
import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, cast

from annotated_types import Ge, Gt, Le, Lt

from robust0.errors import EvaluationError, RecipeError, RunError

if TYPE_CHECKING:  # importing pydantic takes a third of what --help may take
    from pydantic import TypeAdapter

T = TypeVar("T")
Count = Annotated[int, Ge(1), Le(10**12)]
Whole = Annotated[int, Ge(0), Le(10**12)]
Positive = Annotated[float, Gt(0), Lt(float("inf"))]
Fraction = Annotated[float, Ge(0), Le(1)]
Share = Annotated[float, Ge(0), Lt(1)]
OWN = "source: robust0"  # a default that no paper states


def setting(default: Any, about: str, source: str = OWN) -> Any:  # noqa: ANN401 - as dataclasses.field
    """A field of a component: its default, what it means, and who says so."""
    return field(default=default, metadata={"about": about, "source": source})


@dataclass(frozen=True, slots=True)
class Setting:
    """What a component says of one of its fields."""

    name: str
    default: object
    about: str
    source: str


def settings_of(component: type) -> tuple[Setting, ...]:
    """The settings of a component, in the order in which they are declared."""
    return tuple(
        Setting(
            f.name,
            None if f.default is MISSING else f.default,
            f.metadata.get("about", ""),
            f.metadata.get("source", OWN),
        )
        for f in fields(component)
    )


@cache
def adapter(component: Hashable) -> "TypeAdapter[Any]":
    """What validates the settings of a component; made once."""
    from pydantic import TypeAdapter

    return TypeAdapter(cast("type", component))


# How a user names code, by family.
_FLAGS = {"attack": "--attacks ", "training method": "--method "}
_KEYS = {
    "label source": "labels", "inner attack": "inner", "optimiser": "optimizer",
    "augmentation": "augment",
}  # fmt: skip
# What may be imported by its reference; None: whatever is asked for.
_NAMED: ContextVar[frozenset[str] | None] = ContextVar("named", default=None)


@contextmanager
def only_named(references: Iterable[str]) -> Iterator[None]:
    """Inside, only this code is imported: a folder's own files must not choose what runs."""
    token = _NAMED.set(frozenset(references))
    try:
        yield
    finally:
        _NAMED.reset(token)


def imported(reference: str, family: str, said: str = "") -> object:
    """What ``package.module:Name`` stands for; ``said`` names the place that wants it."""
    named = _NAMED.get()
    if named is not None and reference not in named:
        key = _KEYS.get(family, family)
        flag = _FLAGS.get(family, f"--set training.{key}.kind=")
        raise RunError(
            f"the run directory wants to run the {family} {reference}: code runs only if you name "
            "it yourself",
            f"if you trust it, add {flag}{reference}",
        )
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except SystemExit as problem:  # what argparse does to a script's own command line
        raise EvaluationError(
            f"{said}importing {reference} tried to end the program: SystemExit: {problem}",
            "keep its command line under `if __name__ == '__main__'`",
        ) from problem
    except Exception as problem:  # a user's module may raise anything
        raise RecipeError(
            f"{said}{reference} cannot be imported: {type(problem).__name__}: {problem}",
            "write package.module:Name of something Python finds (PYTHONPATH, pip install)",
        ) from problem


class Registry(Generic[T]):
    """The components of one family, by kind; ``group`` is the entry points that add to them."""

    def __init__(self, family: str, members: Iterable[type[T]], group: str | None = None) -> None:
        self.family = family
        self._group = group
        self._members: dict[str, type[T]] = {}
        self._references: dict[type[T], str] = {}
        for member in members:
            self.add(member)
        self.own = tuple(self._members)  # the kinds that ship
        self.installed: tuple[str, ...] = ()  # those that other packages bring

    def add(self, member: type[T]) -> type[T]:
        """Take in a component; its kind must be free. Serves as a decorator."""
        kind = getattr(member, "kind", None)
        if not isinstance(kind, str) or not is_dataclass(member):
            raise RecipeError(
                f"{member!r} is not a {self.family}: it needs a class attribute kind, @dataclass",
                "declare it as a frozen dataclass with kind: ClassVar[str]",
            )
        if self._members.setdefault(kind, member) is not member:
            raise RecipeError(
                f"there are two {self.family}s of the kind {kind!r}: "
                f"{self._members[kind].__module__} and {member.__module__}",
                "give one of them another kind",
            )
        return member

    def __iter__(self) -> Iterator[str]:
        return iter(self.members())

    def __getitem__(self, kind: str) -> type[T]:
        return self.find(kind)

    def __contains__(self, kind: object) -> bool:
        return kind in self.members()

    def members(self) -> Mapping[str, type[T]]:
        """All components by kind, those of installed packages included."""
        group, self._group = self._group, None  # asked once
        if group is not None:
            points = [self.add(point.load()) for point in entry_points(group=group)]
            self.installed = tuple(str(point.kind) for point in points)  # type: ignore[attr-defined]
        return self._members

    def find(self, kind: str, said: str = "") -> type[T]:
        """The component of a kind, or of ``package.module:Name``; ``said`` names the place."""
        if ":" in kind and kind not in self.members():
            return self._imported(kind, said)
        found = self.members().get(kind)
        if found is None:
            close = difflib.get_close_matches(kind, list(self), n=3, cutoff=0.5)
            raise RecipeError(
                f"{said}there is no {self.family} {kind!r}",
                f"did you mean {' or '.join(close)}?" if close else f"one of {', '.join(self)}",
            )
        return found

    def _imported(self, reference: str, said: str) -> type[T]:
        member: Any = imported(reference, self.family, said)
        kind = getattr(member, "kind", None)
        if not (isinstance(kind, str) and self._members.get(kind) is member):
            # Another process finds it by its reference only, so that is what is written.
            self._references[self.add(member)] = reference
        return cast("type[T]", member)

    # -- for recipes -------------------------------------------------------------------------------

    def read(self, value: object) -> T:
        """A component from its recipe form, a mapping with a ``kind``; strict about types."""
        from pydantic_core import PydanticCustomError

        if not isinstance(value, Mapping):
            if type(value) in self._members.values():
                return cast("T", value)
            raise PydanticCustomError("dict_type", "Input should be a mapping with a kind")
        kind = value.get("kind")
        if kind is None:
            raise PydanticCustomError("union_tag_not_found", "has no kind")
        if not isinstance(kind, str) or (":" not in kind and kind not in self):
            tags = ", ".join(repr(name) for name in self)
            context = {"tag": str(kind), "expected_tags": tags}
            raise PydanticCustomError("union_tag_invalid", "has an unknown kind", context)
        rest = {key: item for key, item in value.items() if key != "kind"}
        found = cast("Hashable", self.find(kind))
        made = adapter(found).validate_json(json.dumps(rest), strict=True, extra="forbid")
        return cast("T", made)

    def write(self, component: T) -> dict[str, object]:
        """The recipe form of a component: its kind, then every setting."""
        known: str = component.kind  # type: ignore[attr-defined] # every member has one
        kind = self._references.get(type(component), known)
        values = adapter(cast("Hashable", type(component))).dump_python(component, mode="json")
        return {"kind": kind, **values}

    @property
    def type(self) -> Any:  # noqa: ANN401 - a type for annotations of pydantic models
        """The type of a recipe's field that holds one of these."""
        from pydantic import PlainSerializer, PlainValidator

        return Annotated[object, PlainValidator(self.read), PlainSerializer(self.write), self]
