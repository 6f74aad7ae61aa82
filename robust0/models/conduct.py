"""What a model's own code may do to the run that calls it: raise, exit, write into its input."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from robust0.errors import EvaluationError, Robust0Error
from robust0.models.fast.memory import out_of_memory
from robust0.models.header import one_line

_HINT = "mend the model; what was found so far is kept. ROBUST0_DEBUG=1 shows where it happened"
_COMPILER = ("torch._inductor.exc", "torch._inductor.codecache")
_UNCOMPILED = (
    "leave out --compile, or empty the folder where torch keeps compiled code (torchinductor_* in "
    "the temporary directory): a process that was killed while compiling leaves damaged files there"
)


@contextmanager
def answerable(step: str) -> Iterator[None]:
    """Run a user's code; whatever it raises, SystemExit too, ends the evaluation and not robust0.

    Ctrl-C, robust0's own refusals and memory that ran out keep their meaning.
    """
    try:
        yield
    except (Robust0Error, KeyboardInterrupt):
        raise
    except BaseException as problem:
        if out_of_memory(problem):
            raise
        if _in_the_compiler(problem):
            raise EvaluationError(
                f"compiling the model failed: {describe(problem)}", _UNCOMPILED
            ) from problem
        raise misconduct(f"the model raised {describe(problem)} {step}") from problem


def _in_the_compiler(problem: BaseException) -> bool:
    """Whether torch failed to compile, or to load what it had compiled."""
    frames = traceback.walk_tb(problem.__traceback__)
    places = [type(problem).__module__, *(f.f_globals.get("__name__", "") for f, _ in frames)]
    return any(place.startswith(_COMPILER) for place in places)


@contextmanager
def unchanged(batch: Tensor) -> Iterator[None]:
    """Refuse a model that writes into the images it is asked about: attacks still need them."""
    version = batch._version
    yield
    if batch._version != version:
        raise misconduct("the model changes its input in place")


def misconduct(what: str) -> EvaluationError:
    """The refusal of a model that did this."""
    return EvaluationError(what, _HINT)


def describe(problem: BaseException) -> str:
    """The kind of an exception and what it says, on one line."""
    text = one_line(problem)
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
