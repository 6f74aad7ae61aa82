"""A card: what a released checkpoint is, how it was made, what was measured and by which means.

Accuracies are percent with one decimal, as reports print them. A card is untrusted when read: every
text is one printable line, every file name stays in its folder. No torch here.
"""

import datetime
import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field

from robust0 import upgrades
from robust0.errors import ZooError
from robust0.records import Accuracy, Amount, Frozen, Report, Unit
from robust0.zoo.documents import read_yaml, write_yaml
from robust0.zoo.proved import ProofSummary
from robust0.zoo.scores import (
    FILE,
    Hash,
    JsonName,
    Name,
    RobustScore,
    Scalar,
    Score,
    Text,
    Whole,
    percents,
)

ID = r"^[a-z0-9][a-z0-9._-]{0,99}$"
_RESERVED = {"index"}  # index.yaml lists the cards
_MAX_WEIGHTS = 1 << 40


def _source(text: str) -> str:
    if not re.fullmatch(FILE[1:] + r"\.safetensors", text) and not is_web(text):
        raise ValueError("must be the name of a .safetensors file beside the card, or an https URL")
    return text


def is_id(text: str) -> bool:
    """Whether a text may name a model of a zoo."""
    return re.fullmatch(ID[1:-1], text) is not None and text not in _RESERVED


def is_web(text: str) -> bool:
    """Whether this is an https address, or an http address of this very machine."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not text.isprintable() or not text.isascii() or " " in text or "\\" in text:
        return False
    if not host or parts.username:
        return False
    if parts.query or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _id(text: str) -> str:
    if not is_id(text):
        raise ValueError("is not an id: a-z, 0-9, '.', '_' and '-', at most 100, not 'index'")
    return text


class CardBudget(Frozen):
    """How much of an image may change."""

    unit: Unit
    amount: Annotated[int, Field(ge=1, le=2**31)]


class Measurement(Frozen):
    """The audit behind the numbers; everything but ``threads`` is in its report."""

    dataset: Name
    split: Name
    images: Annotated[int, Field(ge=1)]
    mode: Literal["battery", "cascade"]
    effort: Name
    seed: Whole
    unit: Unit
    threads: Annotated[int, Field(ge=1, le=4096)]
    versions: Annotated[dict[Name, Name], Field(max_length=32)]
    clean: Score
    robust: Annotated[tuple[RobustScore, ...], Field(min_length=1, max_length=1000)]


class Card(Frozen):
    """``<id>.yaml``."""

    schema_version: Literal[2] = Field(2, alias="schema")
    id: Annotated[str, Field(max_length=100), AfterValidator(_id)]
    title: Text
    architecture: Name
    arch_args: dict[Name, Scalar | tuple[Scalar, ...]] = Field(max_length=64)
    dataset: Name
    variant: Name | None
    method: Name
    train_budget: CardBudget | None
    eval_budget: CardBudget
    epochs: Whole
    seed: Whole
    date: datetime.date
    training_command: Text
    recipe: Annotated[str, Field(pattern=r"^[0-9a-f]{8,128}$")] | None
    licence: Name
    versions: Annotated[dict[Name, Name], Field(max_length=32)] = Field(description="of training")
    source: Annotated[str, Field(max_length=1000), AfterValidator(_source)]
    sha256: Hash
    size: Annotated[int, Field(ge=1, le=_MAX_WEIGHTS)]
    report: JsonName
    report_sha256: Hash
    verdicts: JsonName
    verdicts_sha256: Hash
    audit: Measurement
    certificate: ProofSummary | None = Field(
        None, description="of a classifier that can be certified"
    )

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )

    def score(self, name: str, budget: Amount | None = None) -> RobustScore | None:
        """A robust accuracy by name, at the evaluation's budget unless another is asked for."""
        wanted = self.eval_budget.amount if budget is None else budget
        rows = [row for row in self.audit.robust if row.name == name]
        return next((row for row in rows if row.budget == wanted), None)

    def problems(self, report: Report) -> list[str]:
        """Where the card says something else than the report it refers to."""
        found = _differences("audit", measured(report, self.audit.threads), self.audit)
        subject = report.results.subject
        pairs = [
            ("sha256", subject.sha256, self.sha256),
            ("architecture", subject.arch, self.architecture),
            ("method", subject.method, self.method),
        ]
        return found + [
            f"{name}: {a!r} in the report, {b!r} here" for name, a, b in pairs if a != b
        ]


class IndexEntry(Frozen):
    """Which card a remote zoo holds now."""

    sha256: Hash
    size: Annotated[int, Field(ge=1, le=10_000_000)]


class Index(Frozen):
    """``index.yaml``: the cards of a zoo that cannot be listed, such as one behind a web server."""

    schema_version: Literal[1] = Field(1, alias="schema")
    cards: dict[Annotated[str, AfterValidator(_id)], IndexEntry] = Field(max_length=10_000)

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )


def read_card(path: Path, name: str) -> Card:
    """The card of this id; refuses a file that is about another model."""
    card = read_yaml(path, Card, upgrades.card)
    if card.id != name:
        raise ZooError(f"{path} is the card of {card.id}, expected {name}", "rename the file")
    return card


def card_text(card: Card) -> str:
    """The card as YAML."""
    return write_yaml(card)


def measured(report: Report, threads: int) -> Measurement:
    """What a report says, in the words of a card."""
    results = report.results
    rows: list[tuple[Amount, str, Accuracy | None]] = []
    for result in results.budgets:
        rows += [(result.budget, row.name, row.robust) for row in result.attacks]
        rows += [(result.budget, row.name, row.robust) for row in result.ensembles]
    return Measurement(
        dataset=results.subject.dataset,
        split=results.subject.split,
        images=results.subject.images,
        mode=results.settings.mode,
        effort=results.settings.effort_name,
        seed=results.settings.seed,
        unit=results.settings.unit,
        threads=threads,
        versions={key: report.run.versions[key] for key in ("robust0", "torch")
                  if key in report.run.versions},
        clean=Score(**percents(results.clean)),
        robust=tuple(
            RobustScore(name=name, budget=budget, **percents(robust))
            for budget, name, robust in rows
            if robust is not None  # in a cascade attacks have none of their own
        ),
    )  # fmt: skip


def _differences(where: str, expected: Measurement, got: Measurement) -> list[str]:
    """Names of the fields that differ, with both values where they are short."""
    found = []
    for key, value in expected:
        other = getattr(got, key)
        if value == other:
            continue
        if key == "robust":
            found += _score_differences(value, other)
        elif isinstance(value, Score):
            found.append(f"{where}.{key}: {value.percent} % in the report, {other.percent} % here")
        else:
            found.append(f"{where}.{key}: {value!r} in the report, {other!r} here")
    return found


def _score_differences(
    expected: tuple[RobustScore, ...], got: tuple[RobustScore, ...]
) -> list[str]:
    told, claimed = ({(row.name, row.budget): row for row in side} for side in (expected, got))
    found = []
    for name, budget in dict.fromkeys((*told, *claimed)):
        one, other = told.get((name, budget)), claimed.get((name, budget))
        if one != other:
            words = [_words(row) for row in (one, other)]
            found.append(f"{name} at {budget}: {words[0]} in the report, {words[1]} here")
    return found or ["audit.robust: another order than in the report"]


def _words(row: RobustScore | None) -> str:
    return "absent" if row is None else f"{row.percent} % ({row.low} - {row.high})"
