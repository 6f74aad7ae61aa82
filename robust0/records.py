"""What an audit leaves behind: a verdict per image and attack, and the report folded from them.

No torch here: reports are read, compared and drawn without it. ``Results`` is byte-identical for
identical runs; whatever depends on the clock or the machine is in ``RunInfo``.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

CLEAN = "clean"  # the "attack" of a verdict on the unchanged image
TIME_LIMIT = "time-limit"  # the flag of an audit that the clock ended
CONVERGED = "converged"  # the effort that goes on until little is left to find
_ROUND = "#"  # between an attack's name and its round; no configured name has it

# What a budget counts: pixel, feature, row, column, patch:4; robust0.threats knows them.
Unit = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}(:[1-9][0-9]{0,5})?$")]
Amount = int | float  # of a budget or a distance; whole for sparse threats
Share = Annotated[float, Field(ge=0, le=1)]


def in_round(attack: str, number: int) -> str:
    """What an attack is called in a round of a converged audit."""
    return f"{attack}{_ROUND}{number}"


def configured(attack: str) -> str:
    """An attack's own name, without its round."""
    return attack.partition(_ROUND)[0]


def round_of(attack: str) -> int:
    """The round in a name; 1 where it has none."""
    number = attack.partition(_ROUND)[2]
    return int(number) if number.isascii() and number.isdigit() else 1


class Frozen(BaseModel):
    """Immutable, and closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Verdict(Frozen):
    """One image under one attack; a line of verdicts.jsonl."""

    image: int
    label: int
    attack: str = Field(description="configured name, perhaps with #round, or clean")
    revision: int
    unit: Unit
    budget: Amount = Field(description="largest distance allowed; 0 for clean")
    fooled: bool
    prediction: int
    margin: float = Field(description="of the hit, or the lowest found; negative: misclassified")
    distance: Amount = Field(description="from the clean image, of the attempt as found")
    needed: Amount = Field(description="the distance left after giving back what a hit can spare")
    forwards: int
    backwards: int
    fragile: bool = Field(description="the margin is so small that rounding could flip it")
    violation: str = Field(description="empty, or the promise the attack broke")


class Accuracy(Frozen):
    """A share of images with its 95 % Wilson interval; an upper bound on robustness."""

    count: int = Field(description="images still classified correctly")
    images: int
    share: Share
    low: Share
    high: Share


class AttackRow(Frozen):
    """One attack at one budget. In a cascade, only ``attacked`` images were left for it."""

    name: str
    kind: str
    revision: int
    params: dict[str, int | float | str | bool | None]
    notes: tuple[str, ...] = Field(description="such as subsampled")
    attacked: int
    broken: int
    only: int | None = Field(description="broken by no other attack of the run; null in a cascade")
    robust: Accuracy | None = Field(description="its own robust accuracy; null in a cascade")
    median_distance: float | None = Field(description="that its hits need")
    median_passes: float | None = Field(description="forwards and backwards per attacked image")
    fragile: int
    violations: int


class EnsembleRow(Frozen):
    """The worst case per image over several attacks."""

    name: str = Field(description="saa, or worst-case")
    attacks: tuple[str, ...]
    robust: Accuracy


class BudgetResult(Frozen):
    """Everything at one budget."""

    unit: Unit
    budget: Amount
    attacks: tuple[AttackRow, ...]
    ensembles: tuple[EnsembleRow, ...]


class CurvePoint(Frozen):
    """Accuracy at a budget over every hit of the run that needs no more than that."""

    budget: Amount
    robust: Accuracy


class RoundRow(Frozen):
    """One attack in one round of a converged audit."""

    budget: Amount
    number: int = Field(description="of the round; each has twice the passes of the one before")
    attack: str
    attacked: int
    passes: int = Field(description="the most an image could cost")
    spent: int = Field(description="forwards and backwards on all its images")
    quarters: tuple[int, int, int, int] = Field(
        description="images broken within a quarter, a half, three quarters and all of the passes"
    )
    robust: Accuracy = Field(description="what no attack so far has broken")

    @property
    def broken(self) -> int:
        """Images it broke."""
        return self.quarters[3]


class ClassRow(Frozen):
    """Clean and worst-case accuracy of one class at the largest budget."""

    label: int
    name: str
    images: int
    clean: int
    robust: int


class Flag(Frozen):
    """A reason to doubt the evaluation; fatal ones end a --strict run with exit 4."""

    name: str
    fatal: bool
    message: str


class Subject(Frozen):
    """The model and the data."""

    model: str = Field(description="what the user named")
    arch: str
    sha256: str | None = Field(description="of the checkpoint file")
    method: str | None
    dataset: str
    split: str
    data_fingerprint: str
    image_ids: str = Field(description="sha256 of the attacked ids")
    images: int
    choice: str = Field("", description="how the images were chosen")
    image_shape: tuple[int, int, int] | None = Field(None, description="channels, height, width")
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Settings(Frozen):
    """How it was attacked; two reports compare only where these agree."""

    recipe: str = Field(description="hash of the resolved recipe")
    mode: Literal["battery", "cascade"]
    effort: str
    changed: tuple[str, ...] = Field((), description="settings that are not those of the effort")
    tolerance: Share | None = Field(None, description="of images that a last doubling may break")
    max_passes: int | None = Field(None, description="per image, of a converged audit")
    max_minutes: float | None = Field(None, description="of a converged audit, if it has a limit")
    seed: int
    budgets: tuple[Amount, ...]
    unit: Unit
    batch_size: int = Field(description="images of every model call")
    search_dtype: str
    compiled: bool
    device: str
    torch: str

    @property
    def effort_name(self) -> str:
        """The effort; one whose settings were changed says so."""
        return f"{self.effort} (modified)" if self.changed else self.effort


class Results(Frozen):
    """Numbers and what they mean; the same bytes for the same run."""

    subject: Subject
    settings: Settings
    clean: Accuracy
    budgets: tuple[BudgetResult, ...] = Field(description="largest first")
    curve: tuple[CurvePoint, ...]
    rounds: tuple[RoundRow, ...] = Field((), description="of a converged audit, in order")
    classes: tuple[ClassRow, ...]
    flags: tuple[Flag, ...]
    untested: tuple[str, ...] = Field(description="what this audit says nothing about")


class RunInfo(Frozen):
    """What may differ between identical runs."""

    started: str
    finished: str
    seconds: float
    attack_seconds: dict[str, float]
    processes: int
    host: str
    versions: dict[str, str]
    command: tuple[str, ...]


class Report(Frozen):
    """report.json."""

    schema_version: Literal[2] = Field(2, alias="schema")
    results: Results
    run: RunInfo

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )
