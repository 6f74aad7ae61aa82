"""Errors and warnings for callers in Python: the hint in the text, no words of a shell."""

import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from robust0.errors import Robust0Error
from robust0.records import Flag

_COMMAND = re.compile(r"(?:[;,] )?(?:see|from|in|or an id from) robust0 [a-z]+(?: [a-z]+)?")
_CALLS = re.compile(r"robust0 (harden|audit)\b(?: --?[a-z][\w-]*(?: [\w./:-]+)?)*")
_OPTION = re.compile(r"--([a-z][a-z-]*[a-z])\b")
_SHORT = re.compile(r",? ?or choose another -o|with -o\b")


class EvaluationWarning(UserWarning):
    """A reason to doubt an evaluation, or something that was assumed about its inputs."""


@contextmanager
def in_python() -> Iterator[None]:
    """Raise refusals again with words that make sense outside a shell."""
    try:
        yield
    except Robust0Error as refusal:
        said = type(refusal)(spoken(refusal.message), spoken(refusal.hint))
        raise said.with_traceback(refusal.__traceback__) from refusal.__cause__


def spoken(text: str) -> str:
    """A message without options and commands: ``--batch-size`` is the argument ``batch_size``."""
    text = _SHORT.sub("", _COMMAND.sub("", _CALLS.sub(r"robust0.\1", text)))
    return _OPTION.sub(lambda match: match[1].replace("-", "_"), text).strip()


def warn_of(flags: Iterable[Flag], notes: Iterable[str] = ()) -> None:
    """Flags and assumptions as warnings of the caller's line."""
    for note in notes:
        warnings.warn(note, EvaluationWarning, stacklevel=3)
    for flag in flags:
        warnings.warn(f"{flag.name}: {spoken(flag.message)}", EvaluationWarning, stacklevel=3)
