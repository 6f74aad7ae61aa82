"""What a gate decided: one check per condition, and the one place that turns them into a verdict.

The verdict line and the exit code are properties of the same checks, so they cannot disagree.
"""

from robust0.records import Frozen

PASSED, FAILED = 0, 1


class PairedComparison(Frozen):
    """A run against a baseline on the same images; shares in percent, differences in points."""

    images: int
    worse: int  # correct in the baseline, not in the run
    better: int
    before: float
    after: float
    drop: float
    low: float
    high: float
    p: float  # one-sided exact McNemar test
    smallest: float | None  # the smallest drop this many images can show; none: too few


class Check(Frozen):
    """One condition and whether it holds."""

    metric: str  # such as "saa at 20 pixels"
    condition: str
    passed: bool
    value: float  # percent
    message: str
    paired: PairedComparison | None = None


class ReplayResult(Frozen):
    """A baseline's attempts tried on a new model; an alarm, not part of the paired test."""

    images: int  # of the baseline
    survivors: int  # attempts tried that the baseline's model withstood
    newly_broken: int  # of those, the new model errs on the attempt or on the clean image
    newly_wrong: int  # of those, on the clean image already
    hits: int  # attempts tried that broke the baseline's model
    still_hits: int  # of those, the new model errs too

    @property
    def points(self) -> float:
        """Newly broken images, in points of accuracy over all images of the baseline."""
        return 100 * self.newly_broken / self.images if self.images else 0.0

    def sentence(self) -> str:
        """What was tried and what fell."""
        return (
            f"replay: {self.newly_broken} of {self.survivors} attempts that the baseline withstood "
            f"break this model ({self.points:.1f} points of {self.images:,} images; "
            f"{self.newly_wrong} of them clean); {self.still_hits} of {self.hits} old hits still "
            "work"
        )


class Replay(Frozen):
    """A replay and what was asked of it."""

    result: ReplayResult
    allowed: float  # points
    alarm: bool
    decisive: bool  # --fail-on-replay


class Decision(Frozen):
    """All checks of one gate."""

    identity: str  # battery, effort, unit, images, seed
    checks: tuple[Check, ...]
    replay: Replay | None = None
    meaning: str | None = None  # what the numbers do not say; None: that of an audit
    caveats: tuple[str, ...] = ()  # how the run searched differently from the baseline

    @property
    def failures(self) -> tuple[tuple[str, str], ...]:
        """The title and the message of every condition that does not hold."""
        broken = [(check.metric, check.message) for check in self.checks if not check.passed]
        if self.replay is not None and self.replay.alarm and self.replay.decisive:
            broken.append(("replay", self.replay.result.sentence()))
        return tuple(broken)

    @property
    def conditions(self) -> int:
        """How many conditions could have failed."""
        return len(self.checks) + int(self.replay is not None and self.replay.decisive)

    @property
    def passed(self) -> bool:
        """Whether every condition holds."""
        return not self.failures

    @property
    def exit_code(self) -> int:
        """0 or 1."""
        return PASSED if self.passed else FAILED

    @property
    def verdict(self) -> str:
        """The line that says what the exit code says."""
        if not self.conditions:
            return "gate passed: no condition was set; the replay only warns"
        told = f"{_count(self.conditions)} met"
        if not self.passed:
            told = f"{len(self.failures)} of {_count(self.conditions)} not met"
        other = f" (the searches differ: {', '.join(self.caveats)})" if self.caveats else ""
        return f"gate {'passed' if self.passed else 'FAILED'}: {told}{other}"

    def document(self) -> dict[str, object]:
        """The decision as JSON."""
        body = self.model_dump(mode="json")
        return {
            "schema": 1,
            "passed": self.passed,
            "exit_code": self.exit_code,
            "verdict": self.verdict,
            **body,
        }


def points(value: float) -> str:
    """``1 point``, ``2.5 points``."""
    return f"{value:g} point{'' if value == 1 else 's'}"


def _count(conditions: int) -> str:
    return f"{conditions} condition{'' if conditions == 1 else 's'}"
