"""The names of networks, read from the files that register them: timm is not imported.

Importing timm takes seconds; a name is refused, or completed by the shell, in a few hundredths.
"""

import difflib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from robust0.errors import ModelError

_REGISTERED = re.compile(r"^@register_model\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)
_NAME = re.compile(r"[a-z0-9_]{1,100}(\.[a-z0-9_]{1,100})?")
_OWN = Path(__file__).parent / "models" / "networks"


def own() -> tuple[str, ...]:
    """The networks that robust0 brings."""
    return tuple(sorted(_names(_OWN)))


@cache
def architectures() -> tuple[str, ...]:
    """Every network that can be named, our own included."""
    folder = _timm()
    theirs = _names(folder) if folder is not None else set()
    return tuple(sorted(theirs | _names(_OWN)))


def is_architecture(text: str) -> bool:
    """Whether this is the name of a network, with or without a tag."""
    return text.partition(".")[0] in architectures()


def check_architecture(name: str) -> None:
    """Refuse what is not the name of a network, proposing close ones."""
    if _NAME.fullmatch(name) is None:
        raise ModelError(
            f"{name[:160]!r} is not the name of a timm network",
            "use a name from timm.list_models(), for example resnet18",
        )
    arch = name.partition(".")[0]
    if is_architecture(arch) or _deprecated(arch):
        return
    close = difflib.get_close_matches(arch, architectures(), n=3, cutoff=0.5)
    names = f"close names: {', '.join(close)}" if close else f"our own are {', '.join(own())}"
    raise ModelError(f"timm knows no network {arch!r}", names)


def _deprecated(arch: str) -> bool:
    """Whether timm's files mention the name, as they do for old names of present networks."""
    folder = _timm()
    return folder is not None and any(f"'{arch}'" in text for text in _texts(folder))


def _timm() -> Path | None:
    found = importlib.util.find_spec("timm")  # finds the package without running it
    return Path(found.origin).parent / "models" if found is not None and found.origin else None


def _names(folder: Path) -> set[str]:
    return {name for text in _texts(folder) for name in _REGISTERED.findall(text)}


def _texts(folder: Path) -> Iterator[str]:
    return (path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
