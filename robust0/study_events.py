"""Facts that a study yields and views draw; no torch, no rich."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StudyStarted:
    """A part of a study begins, or goes on after the units that are ready."""

    part: str
    title: str
    units: int
    ready: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StudyAdvanced:
    """A unit is under way."""

    unit: int  # counted from zero
    about: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class StudyFinished:
    """A part of a study is complete."""

    part: str
    path: str | None


StudyEvent = StudyStarted | StudyAdvanced | StudyFinished
