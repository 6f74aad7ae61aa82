"""Words and numbers of cards: texts of one printable line, percent with one decimal. No torch."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from robust0.records import Accuracy, Frozen

FILE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,120}"


def _printable(text: str) -> str:
    """Refuse control characters: these strings are shown in terminals."""
    if not text.isprintable():
        raise ValueError("must be printable text on one line")
    return text


def _one_decimal(value: float) -> float:
    if round(value, 1) != value:
        raise ValueError("must be percent with one decimal")
    return value


Text = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_printable)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
JsonName = Annotated[str, Field(pattern=FILE + r"\.json$")]
Percent = Annotated[float, Field(ge=0, le=100), AfterValidator(_one_decimal)]
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Scalar = bool | int | float | Name | None


class Score(Frozen):
    """An accuracy in percent with its 95 % Wilson interval."""

    percent: Percent
    low: Percent
    high: Percent

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.percent <= self.high:
            raise ValueError("must lie in its own interval")
        return self


class Condition(Frozen):
    """Under which attack or ensemble, and at which budget."""

    name: Name
    budget: Whole


class RobustScore(Score, Condition):
    """Accuracy under one attack, or under all of an ensemble (saa, worst-case), at a budget."""


def percents(accuracy: Accuracy) -> dict[str, float]:
    """The fields of a score."""
    shares = {"percent": accuracy.share, "low": accuracy.low, "high": accuracy.high}
    return {key: float(f"{100 * share:.1f}") for key, share in shares.items()}
