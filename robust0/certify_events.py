"""Facts that a certificate's run yields and views draw; no torch, no rich."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robust0.proofs import CertificateReport, Proof
    from robust0.records import Accuracy


@dataclass(frozen=True, slots=True)
class CertifyStarted:
    """The run begins, or goes on where an earlier one was cut off."""

    title: str
    images: int
    classifiers: tuple[str, ...]  # the headline first
    pixels: tuple[int, ...]  # asked about, ascending
    proofs: int  # already there
    path: str | None


@dataclass(frozen=True, slots=True)
class CertifyProgress:
    """Where the proofs stand: of the images seen so far, how many are right and certified."""

    done: int
    images: int
    standings: tuple[tuple[str, tuple["Accuracy", ...]], ...]  # by classifier: clean, then pixels


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """Certificates under attack, each within its own radius."""

    classifier: str
    attack: str
    done: int  # of all trials
    trials: int
    broken: tuple[int, ...]  # images


@dataclass(frozen=True, slots=True)
class CertifyFinished:
    """The end: a report, or the signal that cut the run short."""

    report: "CertificateReport | None"
    path: str | None
    interrupted: int | None
    proofs: tuple["Proof", ...] = ()


CertifyEvent = CertifyStarted | CertifyProgress | TrialProgress | CertifyFinished
