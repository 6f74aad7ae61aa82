"""Errors a user can act on: one line of message, one line of hint, an exit code."""

from collections.abc import Sequence
from typing import ClassVar


class Robust0Error(Exception):
    """A refusal that the command line prints as two lines, without a traceback."""

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, hint: str = "", faults: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.faults = tuple(faults) or (message,)  # all that is wrong, where more was found

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class RecipeError(Robust0Error):
    """A recipe, or an option that overrides one, is not valid."""


class ModelError(Robust0Error):
    """A network cannot be built, or a checkpoint cannot be trusted or loaded."""


class DataError(Robust0Error):
    """A dataset is missing, damaged or of the wrong shape."""


class ZooError(Robust0Error):
    """A card or its weights cannot be found, fetched or verified."""


class RunError(Robust0Error):
    """A run directory cannot be written, resumed or compared."""


class DiskError(RunError):
    """The disk of a running run is full or gone: no mistake of the user's command."""

    exit_code: ClassVar[int] = 3


class EvaluationError(Robust0Error):
    """The evaluation itself failed; no number from it may be used."""

    exit_code: ClassVar[int] = 3


class TrainingError(Robust0Error):
    """Training cannot go on; the last good snapshot is kept."""

    exit_code: ClassVar[int] = 3


class AttackContractError(EvaluationError):
    """An attack broke its own promises (sites, box, finiteness): a bug in robust0."""


class UnreliableError(Robust0Error):
    """The evaluation finished but a check says its numbers cannot be believed."""

    exit_code: ClassVar[int] = 4
