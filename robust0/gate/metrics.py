"""The numbers a gate can name, and floors for them, as the command line writes them."""

import math
from dataclasses import dataclass
from fractions import Fraction

from robust0.errors import RecipeError
from robust0.records import CLEAN, Amount
from robust0.wording import tidy


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of a report: clean, an ensemble or an attack, at a budget (the largest if None)."""

    name: str
    budget: Amount | None = None

    def __str__(self) -> str:
        return self.name if self.budget is None else f"{self.name}@{self.budget}"


@dataclass(frozen=True, slots=True)
class Floor:
    """The lowest accuracy, in percent, that a metric may have."""

    metric: Metric
    percent: Fraction


def parse_metric(text: str) -> Metric:
    """``saa``, ``worst-case``, ``clean``, an attack's name; ``@10`` names a budget."""
    name, at, budget = text.strip().partition("@")
    numbered = budget.isascii() and budget.isdigit() and name != CLEAN
    if not name or (at and not numbered):
        raise RecipeError(
            f"{tidy(text)!r} is not a metric", "for example saa, worst-case, clean or sparse-rs@20"
        )
    return Metric(name, int(budget) if at else None)


def parse_floor(text: str) -> Floor:
    """``saa=60`` or ``saa=60%``: in percent. A bare fraction is refused: 0.6 would mean 0.6 %."""
    name, equals, value = text.strip().partition("=")
    hint = "for example --fail-under saa=60"
    if not equals:
        raise RecipeError(f"--fail-under {tidy(text)!r} is not NAME=PERCENT", hint)
    signed = value.endswith("%")
    percent = percentage(value.removesuffix("%"), "--fail-under", hint)
    if 0 < percent <= 1 and not signed:
        meant = f"{name}={plain_name(100 * percent)}"
        raise RecipeError(
            f"--fail-under {tidy(text)} would be a floor of {plain_name(percent)} percent",
            f"write {meant} for {plain_name(100 * percent)} %, or {name}={plain_name(percent)}% "
            "if you mean it",
        )
    return Floor(parse_metric(name), percent)


def percentage(text: str, option: str, hint: str) -> Fraction:
    """A number from 0 to 100, exactly as written."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 100:  # NaN is not
        raise RecipeError(f"{option} needs a number from 0 to 100, got {tidy(text)!r}", hint)
    return Fraction(repr(value))  # the decimal, not the binary number nearest to it


def plain_name(value: Fraction) -> str:
    """As people write it."""
    return f"{float(value):g}"
