"""A recipe before validation: nested values, each of which remembers where it was written."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from robust0.errors import RecipeError

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Which layer gave a value, the remark beside it (a table, a section), its file and line."""

    where: str
    note: str = ""
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.where} ({self.note})" if self.note else self.where

    @property
    def place(self) -> str:
        """The position as editors print it: ``file:line``, or the layer's name without a line."""
        return (self.file or self.where) if self.line is None else f"{self.file}:{self.line}"

    def says(self, text: str) -> str:
        """A message with the position before it, where there is one."""
        return text if self == DEFAULT else f"{self.place}: {text}"


DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar or a list of scalars, with its origin."""

    value: object
    origin: Origin


Tree = Leaf | list["Tree"] | dict[str, "Tree"]
Branch = dict[str, Tree]


def dotted(path: Path) -> str:
    """The path as it is written in ``--set`` and in messages."""
    return ".".join(path)


def grow(value: object, origin: Origin) -> Tree:
    """A tree of plain mappings, lists and scalars that all have one origin."""
    if isinstance(value, Mapping):
        return {str(key): grow(item, origin) for key, item in value.items()}
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        return [grow(item, origin) for item in value]
    return Leaf(list(value) if isinstance(value, tuple) else value, origin)


def relabel(tree: Tree, where: str) -> Tree:
    """The tree as given by another layer; remarks, files and lines stay."""
    if isinstance(tree, Leaf):
        return Leaf(tree.value, replace(tree.origin, where=where))
    if isinstance(tree, list):
        return [relabel(item, where) for item in tree]
    return {key: relabel(item, where) for key, item in tree.items()}


def plain(tree: Tree) -> object:
    """The values alone."""
    if isinstance(tree, Leaf):
        return tree.value
    if isinstance(tree, list):
        return [plain(item) for item in tree]
    return {key: plain(item) for key, item in tree.items()}


def leaves(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, Leaf]]:
    """Every leaf with its path; the members of a list are numbered from 0."""
    if isinstance(tree, Leaf):
        yield path, tree
        return
    items = enumerate(tree) if isinstance(tree, list) else tree.items()
    for key, item in items:
        yield from leaves(item, (*path, str(key)))


def origin_of(tree: Tree, otherwise: Origin = DEFAULT) -> Origin:
    """The origin of the first leaf; an empty mapping has none of its own."""
    return next((leaf.origin for _, leaf in leaves(tree)), otherwise)


def branch(tree: Tree | None, path: Path) -> Branch:
    """The tree as a mapping; absent counts as empty, anything else is refused."""
    if tree is None:
        return {}
    if isinstance(tree, dict):
        return tree
    raise RecipeError(
        origin_of(tree).says(f"{dotted(path)} must be a mapping, got {plain(tree)!r}"),
        f"write {dotted(path)} as a block of key: value lines",
    )


def value_at(tree: Tree, *path: str) -> object:
    """The plain value at a path, or None where nothing stands."""
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return None
        tree = tree[key]
    return plain(tree)


def merge(lower: Branch, upper: Branch, path: Path = ()) -> Branch:
    """The upper mapping laid over the lower one, key by key.

    Lists are replaced as a whole. So is a mapping whose keys would otherwise mix two things: one
    that changes its ``kind``, a threat in another unit, a model with another name.
    """
    result = dict(lower)
    for key, item in upper.items():
        here = (*path, key)
        below = result.get(key)
        if isinstance(item, dict) and isinstance(below, dict) and not _replaces(below, item, here):
            result[key] = merge(below, item, here)
        else:
            result[key] = item
    return result


def _replaces(lower: Branch, upper: Branch, path: Path) -> bool:
    if path[-1] == "threat":
        units = [{k for k, v in side.items() if k != "patch_size" and plain(v) is not None}
                 for side in (lower, upper)]  # fmt: skip
        return all(units) and units[0] != units[1]
    identity = "name" if path == ("model",) else "kind"
    if identity not in upper or identity not in lower:
        return False
    return plain(upper[identity]) != plain(lower[identity])
