"""What an attack is: frozen settings and four row-wise methods; the engine owns the loop.

All state lives in a :class:`State`, one row per image. Rows are independent: a row's trajectory is
a function of its image, label, id and settings alone, so the engine may run rows in any company.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

from robust0.lazy import torch
from robust0.losses import cross_entropy
from robust0.rng import Stream
from robust0.threats import Threat

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """Correctly classified images to attack, with what names their random draws."""

    images: Tensor  # (B, C, H, W)
    labels: Tensor  # (B,)
    ids: Tensor  # (B,)
    threat: Threat
    stream: Stream
    classes: int

    @property
    def k(self) -> int:
        """How many sites may change."""
        return int(self.threat.budget)


Value = int | float | str | bool | None
Efforts = Mapping[str, Mapping[str, Value]]  # effort -> the settings that bound an attack's passes
_FIXED = frozenset({"clean", "labels", "ids"})


@dataclass(slots=True, kw_only=True)
class State:
    """Per-row state; every tensor attribute has the rows in its first dimension.

    Attacks subclass it with their own tensors. ``step`` counts the replies a row has been told.
    """

    clean: Tensor  # (B, g, S)
    labels: Tensor  # (B,)
    ids: Tensor  # (B,)
    step: Tensor  # (B,)
    image_shape: tuple[int, int, int]
    threat: Threat
    stream: Stream

    @property
    def k(self) -> int:
        """How many sites may change."""
        return int(self.threat.budget)

    def image(self, sites: Tensor) -> Tensor:
        """(B, g, S) values as (B, C, H, W) images."""
        return self.threat.image(sites, self.image_shape)

    def random_sites(self, lane: int = 0) -> Tensor:
        """(B, k) distinct sites, drawn anew at every step."""
        return self.stream.subset(self.ids, self.step, self.k, self.clean.shape[2], lane)

    def random_corners(self, lane: int = 1) -> Tensor:
        """(B, g, k) zeros and ones, drawn anew at every step."""
        groups, k = self.clean.shape[1], self.k
        words = self.stream.integers(self.ids, self.step, groups * k, 2, lane)
        return words.view(-1, groups, k).to(self.clean.dtype)

    def painted(self, sites: Tensor, colours: Tensor) -> Tensor:
        """(B, g, S) the clean image with (B, g, n) colours at the sites (B, n)."""
        return self.clean.scatter(2, sites[:, None].expand_as(colours), colours)

    def take(self, rows: Tensor) -> Self:
        """A copy of these rows."""
        picked: dict[str, Any] = {name: getattr(self, name)[rows] for name in self._tensors()}
        return replace(self, **picked)

    def put(self, rows: Tensor, other: Self) -> None:
        """Overwrite these rows with another state's rows."""
        for name in self._tensors():
            getattr(self, name)[rows] = getattr(other, name)

    def move_on(self, rows: Tensor, other: Self) -> None:
        """Overwrite what attacks change in these rows: all but image, label and id."""
        for name in self._tensors():
            if name not in _FIXED:
                getattr(self, name)[rows] = getattr(other, name)

    def grown(self, other: Self) -> Self:
        """This state with another's rows appended."""
        joined: dict[str, Any] = {
            name: torch.cat([getattr(self, name), getattr(other, name)]) for name in self._tensors()
        }
        return replace(self, **joined)

    def bytes_per_row(self) -> int:
        """Memory one row holds."""
        tensors = [getattr(self, name) for name in self._tensors()]
        return sum(t[0].numel() * t.element_size() for t in tensors)

    def _tensors(self) -> list[str]:
        return [f.name for f in fields(self) if isinstance(getattr(self, f.name), torch.Tensor)]


@dataclass(frozen=True, slots=True)
class AttackName:
    """A name that records carry, with the settings that the name itself says.

    ``rank`` orders a cascade: attacks that break most images per pass come first.
    """

    name: str
    rank: int = 100
    params: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model said about the images of ``ask``.

    ``gradient`` is that of the attack's ``objective`` with respect to the image, as sites, or None
    if the engine was not asked for it.
    """

    logits: Tensor  # (B, K)
    gradient: Tensor | None = None  # (B, g, S)


S = TypeVar("S", bound=State)


def begin(rows: Rows) -> dict[str, Any]:
    """The common fields of a fresh state, to be passed to the attack's State subclass."""
    return {
        "clean": rows.threat.view(rows.images).clone(),
        "labels": rows.labels.clone(),
        "ids": rows.ids.clone(),
        "step": torch.zeros_like(rows.ids),
        "image_shape": tuple(rows.images.shape[1:]),
        "threat": rows.threat,
        "stream": rows.stream,
    }


class Attack(ABC, Generic[S]):
    """Frozen settings of one attack; ``kind`` is its name in recipes, records and on the CLI.

    A black box needs ``passes``, ``ask`` and ``tell``; everything else has a usual answer.
    """

    __slots__ = ()
    kind: ClassVar[str]
    revision: ClassVar[int] = 1  # goes up when results can change
    black_box: ClassVar[bool] = False  # asks for logits only
    leaves_budget: ClassVar[bool] = False  # iterates may exceed the budget (minimum norm)
    units: ClassVar[tuple[str, ...] | None] = None  # of the threats it serves; None: any sparse one
    mixed: ClassVar[bool] = False  # follows gradients, and searches blindly where they mislead
    efforts: ClassVar[Efforts] = {}
    configured: ClassVar[tuple[AttackName, ...]]  # the names it has in a battery

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls) and "configured" not in vars(cls):
            cls.configured = (AttackName(cls.kind),)

    @property
    def notes(self) -> tuple[str, ...]:
        """Labels its row in a report must carry, such as ``subsampled``."""
        return ()

    @abstractmethod
    def passes(self, threat: Threat, image_shape: tuple[int, int, int], classes: int) -> int:
        """The largest number of forward-equivalents a row can cost (a backward counts as one)."""

    def start(self, rows: Rows) -> S:
        """The state before the first query."""
        return cast("S", State(**begin(rows)))

    def wants_gradient(self, state: S) -> Tensor:
        """(B,) bool: whether the next query of each row needs the input gradient."""
        return torch.full_like(state.step, not self.black_box, dtype=torch.bool)

    @abstractmethod
    def ask(self, state: S) -> Tensor:
        """The images (B, C, H, W) to query next, one per row; does not change the state."""

    def objective(self, state: S, logits: Tensor) -> Tensor:
        """(B,) what the attack climbs, differentiable in the logits; usually cross entropy."""
        return cross_entropy(logits, state.labels)

    @abstractmethod
    def tell(self, state: S, reply: Reply) -> Tensor:
        """Move the state on (in place); (B,) bool: which rows have spent their budget."""
