"""Sparse-RS [Croce22]: random search over which sites to paint with which corner colours."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

import torch
from annotated_types import Gt, Le
from torch import Tensor

from robust0.attacks.base import Reply, Rows, State, begin
from robust0.losses import cross_entropy, margin
from robust0.threat import Threat

_START, _COLOUR, _SWAP = 0, 1, 2  # lanes of the random stream
# [Croce22] The share of sites that move is p_init divided by these, up to these of 10,000 queries.
_SHRINKING: Final = (
    (0, 1), (50, 2), (200, 4), (500, 5), (1000, 6), (2000, 8), (4000, 10), (6000, 12), (8000, 15),
)  # fmt: skip
_LAST: Final = 20


def swap_sizes(queries: int, p_init: float, budget: int, free: int) -> list[int]:
    """How many sites the candidate of query 1, 2, ... swaps; entry 0 is the start and unused.

    The schedule is made for 10,000 queries and is stretched to ``queries``. With no ``free`` site
    the used ones are recoloured, otherwise no more are swapped than there are free.
    """
    most = min(budget, free) if free else budget
    sizes = []
    for query in range(queries + 1):
        scaled = 10_000 * query // queries
        divisor = next((by for until, by in _SHRINKING if scaled <= until), _LAST)
        # The small number undoes rounding: 0.1 * 30 / 3 must not floor to 0.
        sizes.append(min(max(math.floor(p_init * budget / divisor + 1e-9), 1), most))
    return sizes


def words_needed(size: int, of: int) -> int:
    """How many random words :func:`distinct` takes for ``size`` out of ``of`` positions."""
    if size == 1:
        return 1
    return of if of < 16 * size else 2 * size + 8


def distinct(words: Tensor, size: int, of: int) -> Tensor:
    """(B, size) distinct positions in [0, of), uniform and in random order, from 32-bit words.

    Few positions are ordered by random keys. Of many, the first distinct ones of a longer
    independent draw are taken, which costs nothing per position; that the draw is too short has a
    probability under 1e-16, and would repeat a position.
    """
    if size > 1 and words.shape[1] == of:
        return words.topk(size, dim=1).indices
    draws = (words * of) >> 32
    if size == 1:
        return draws
    ordered, where = draws.sort(dim=1, stable=True)
    again = torch.zeros_like(where, dtype=torch.bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    repeated = torch.zeros_like(again).scatter_(1, where, again)
    return draws.gather(1, repeated.to(torch.uint8).argsort(dim=1, stable=True)[:, :size])


def corner_colours(words: Tensor, groups: int) -> Tensor:
    """(B, g, n) zeros and ones from the low bytes of (B, ceil(g / 8), n) words."""
    channel = torch.arange(groups, device=words.device)
    source = words if groups <= 8 else words[:, channel // 8]
    return ((source >> (channel % 8)[:, None]) & 1).float()


@dataclass(frozen=True, slots=True)
class Schedule:
    """Swap sizes by query, shared by all rows (not a tensor attribute of the state)."""

    sizes: Tensor  # (queries + 1,)
    widest: int


@dataclass(slots=True, kw_only=True)
class SparseRSState(State):
    """The incumbent and the trial of each row, as lists of exactly k sites and their colours.

    A list says the same as an image at k/S of its size, so that moving and comparing are cheap.
    """

    sites: Tensor  # (B, k)
    colours: Tensor  # (B, g, k)
    trial_sites: Tensor  # (B, k)
    trial_colours: Tensor  # (B, g, k)
    lowest: Tensor  # (B,) objective of the incumbent
    schedule: Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseRS:
    """Swap a shrinking number of painted sites for fresh ones; keep the swap if it lowers the loss.

    Black box: it reads logits only. Every image asked about differs from the clean one in at most k
    sites, each of a corner colour. Where k covers the image there is nothing to swap with, and used
    sites are recoloured. Reference: [Croce22].
    """

    kind: ClassVar[str] = "sparse-rs"
    revision: ClassVar[int] = 1
    black_box: ClassVar[bool] = True
    leaves_budget: ClassVar[bool] = False

    queries: Annotated[int, Gt(0)] = 1000
    p_init: Annotated[float, Gt(0), Le(1)] = 0.8
    loss: Literal["ce", "margin"] = "ce"

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing to add to its row."""
        return ()

    def passes(self, threat: Threat, image_shape: tuple[int, int, int], classes: int) -> int:  # noqa: ARG002
        """One forward per query."""
        return self.queries

    def start(self, rows: Rows) -> SparseRSState:
        """Random sites in random corner colours: the first query."""
        clean = rows.threat.view(rows.images)
        _, groups, count = clean.shape
        k, zero = rows.threat.budget, torch.zeros_like(rows.ids)
        words = rows.stream.words(rows.ids, zero, words_needed(k, count), _START)
        sites = distinct(words, k, count)
        bytes_ = -(-groups // 8)
        paint = rows.stream.words(rows.ids, zero, k * bytes_, _COLOUR).view(-1, bytes_, k)
        colours = corner_colours(paint, groups)
        sizes = swap_sizes(self.queries, self.p_init, k, count - k)
        return SparseRSState(
            **begin(rows),
            sites=sites,
            colours=colours,
            trial_sites=sites.clone(),  # the engine writes into a state's tensors
            trial_colours=colours.clone(),
            lowest=torch.full_like(clean[:, 0, 0], torch.inf),
            schedule=Schedule(torch.tensor(sizes, device=clean.device), max(sizes[1:])),
        )

    def wants_gradient(self, state: SparseRSState) -> Tensor:
        """Never."""
        return torch.zeros_like(state.step, dtype=torch.bool)

    def ask(self, state: SparseRSState) -> Tensor:
        """The clean image with the trial's sites painted."""
        sites = state.trial_sites[:, None].expand_as(state.trial_colours)
        return state.image(state.clean.scatter(2, sites, state.trial_colours))

    def objective(self, state: SparseRSState, logits: Tensor) -> Tensor:
        """Cross entropy or the negative margin; the search raises it."""
        if self.loss == "ce":
            return cross_entropy(logits, state.labels)
        return -margin(logits, state.labels)

    def tell(self, state: SparseRSState, reply: Reply) -> Tensor:
        """Keep the trial where it is better or fools the model, then draw the next one."""
        value = -self.objective(state, reply.logits)
        accepted = (value < state.lowest) | (margin(reply.logits, state.labels) < 0)
        state.lowest = torch.minimum(state.lowest, value)
        state.sites = torch.where(accepted[:, None], state.trial_sites, state.sites)
        state.colours = torch.where(accepted[:, None, None], state.trial_colours, state.colours)
        state.step = state.step + 1
        self._propose(state)
        return state.step >= self.queries

    def _propose(self, state: SparseRSState) -> None:
        (_, groups, count), k = state.clean.shape, state.threat.budget
        wide, free = state.schedule.widest, count - k
        bytes_ = -(-groups // 8)
        # One call for all draws of the query: its cost hardly depends on how many words it makes.
        first = words_needed(wide, k)
        second = first + (words_needed(wide, free) if free else 0)
        words = state.stream.words(state.ids, state.step, second + wide * bytes_, _SWAP)
        columns = distinct(words[:, :first], wide, k)
        paint = words[:, second:].reshape(-1, bytes_, wide)
        colours = corner_colours(paint, groups)
        old_sites = state.sites.gather(1, columns)
        old_colours = state.colours.gather(2, columns[:, None].expand_as(colours))
        if free:
            sites = _free_sites(state.sites, distinct(words[:, first:second], wide, free))
            present = state.clean.gather(2, sites[:, None].expand_as(colours))
        else:
            sites, present = old_sites, old_colours
        size = state.schedule.sizes[state.step][:, None]
        # A single swap must change something: the rest of the word picks a channel to flip.
        idle = (colours == present).all(dim=1) & (size == 1)
        channel = ((paint[:, :1] >> 8) * groups) >> 24
        flip = channel == torch.arange(groups, device=channel.device)[:, None]
        colours = torch.where(idle[:, None] & flip, 1 - colours, colours)
        moves = torch.arange(wide, device=columns.device) < size
        sites = torch.where(moves, sites, old_sites)
        colours = torch.where(moves[:, None], colours, old_colours)
        state.trial_sites = state.sites.scatter(1, columns, sites)
        state.trial_colours = state.colours.scatter(2, columns[:, None].expand_as(colours), colours)


def _free_sites(used: Tensor, ranks: Tensor) -> Tensor:
    """The sites with these ranks (B, n) among those not in ``used`` (B, k)."""
    ordered = used.sort(dim=1).values
    # Entry j has ordered[j] - j free sites before it; a rank passes every entry it reaches.
    before = ordered - torch.arange(used.shape[1], device=used.device)
    return ranks + torch.searchsorted(before, ranks.contiguous(), right=True)
