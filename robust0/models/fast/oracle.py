"""The door through which attacks see a model: frozen, in eval mode, one row count per call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock

import torch
from torch import Tensor, nn

from robust0.errors import EvaluationError, ModelError
from robust0.models.conduct import answerable, misconduct, unchanged
from robust0.models.fast.searching import gains, search_copies
from robust0.models.fast.softplus import QuickSoftplus
from robust0.models.voting import Certifiable

MIN_BATCH = 16
VOTING_BATCH = 4  # of models that ask about many parts of an image, in calls of their own size
Answer = tuple[Tensor, Tensor]  # what decides a search, and the smooth logits gradients come from
Network = Callable[[Tensor], Answer]


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Eval mode without parameter gradients inside; every flag is put back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    wanted = [(weight, weight.requires_grad) for weight in model.parameters()]
    model.eval()
    for weight, _ in wanted:
        weight.requires_grad_(False)  # noqa: FBT003 - by position in torch
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        for weight, flag in wanted:
            weight.requires_grad_(flag)


@dataclass(slots=True)
class Oracle:
    """Answers queries of any length with model calls of exactly ``batch_size`` images.

    Rounding in a model call can depend on its shape, so a fixed row count is what makes a verdict
    the same in any company: short calls are padded. ``search_dtype`` and ``compiled`` speed up the
    search; ``exact`` is always the eager float32 model. Use inside :func:`frozen`.

    With several ``lanes``, that many threads may search at once, each through a copy of the model,
    because a model may keep things in its attributes; ``exact`` has the model itself to itself.
    Where a copy is quicker than the model (:mod:`robust0.models.fast.searching`) it is copied for a
    single lane too: build the oracle when the weights are final. A model that cannot be copied gets
    one lane.

    A model of integer votes (:class:`~robust0.models.voting.Certifiable`) is judged by its votes;
    gradients are those of its smooth stand-in; searches compare votes, equal ones by the stand-in.
    """

    model: nn.Module
    batch_size: int
    device: torch.device
    search_dtype: torch.dtype | None = None
    compiled: bool = False
    channels_last: bool = True
    lanes: int = 1
    calls: int = 0
    gradient_calls: int = 0
    _free: SimpleQueue[Network] = field(init=False, repr=False, default_factory=SimpleQueue)
    _count: Lock = field(init=False, repr=False, default_factory=Lock)
    _compiling: Lock = field(init=False, repr=False, default_factory=Lock)
    _ready: set[bool] = field(init=False, repr=False, default_factory=set)  # gradient calls or not

    def __post_init__(self) -> None:
        # Tiny calls use other kernels; padding is cheap.
        least = VOTING_BATCH if isinstance(self.model, Certifiable) else MIN_BATCH
        self.batch_size = max(self.batch_size, least)
        for network in self._networks():
            self._free.put(network)

    def _networks(self) -> list[Network]:
        """One network per lane."""
        copies = [self.model]
        if self.lanes > 1 or self.search_dtype is not None or gains(self.model):
            count = 1 if self.compiled else self.lanes
            try:
                copies = search_copies(self.model, count, self.search_dtype)
            except (RuntimeError, TypeError, AttributeError, NotImplementedError):
                self.lanes = 1
        if self.compiled and not isinstance(self.model, Certifiable):
            from robust0.models.fast.compiling import compiled  # takes a second to import

            # Compiled code keeps nothing between calls; a copy would only be compiled again.
            return [_twice(compiled(copies[0]))] * self.lanes
        return [_quickened(network) for network in copies]

    def exact(self, images: Tensor) -> Tensor:
        """Logits (N, K) of the eager float32 model, for verdicts."""
        with torch.no_grad():
            answers = [
                self._call(_twice(self.model), self.filled(part), None)[0][: len(part)]
                for part in images.split(self.batch_size)
            ]
            return torch.cat(answers)

    def logits(self, images: Tensor) -> Tensor:
        """Logits for the search; at most ``batch_size`` images."""
        with torch.no_grad(), self._lane(gradient=False) as network:
            return self._call(network, self.filled(images), None)[0][: len(images)]

    def gradient(
        self, images: Tensor, objective: Callable[[Tensor], Tensor], *, raw: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Logits and the gradient of the summed objective with respect to the images.

        Entries that are not finite count as zero unless ``raw``: one infinite slope, say of a power
        of a black pixel, would else be all that an attack sees.
        """
        count = len(images)
        with torch.enable_grad(), self._lane(gradient=True) as network:
            batch = self.filled(images).detach().requires_grad_()
            logits, smooth = (
                answer[:count] for answer in self._call(network, batch, self.search_dtype)
            )
            if not smooth.requires_grad:
                return logits, torch.zeros_like(images)
            (slope,) = torch.autograd.grad(
                objective(smooth).sum(), batch, allow_unused=True, materialize_grads=True
            )
        slope = slope[:count].detach()
        return logits.detach(), slope if raw else slope.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)

    @contextmanager
    def _lane(self, *, gradient: bool) -> Iterator[Network]:
        """A network that nobody else is using."""
        with self._count:
            self.calls += 1
            self.gradient_calls += gradient
        network = self._free.get()
        # Two threads that were the first to ask at once would both compile.
        alone = self.compiled and gradient not in self._ready
        try:
            with self._compiling if alone else nullcontext():
                yield network
            self._ready.add(gradient)
        finally:
            self._free.put(network)

    def filled(self, images: Tensor) -> Tensor:
        """The images of one call, filled up to its row count."""
        short = self.batch_size - len(images)
        if short:
            images = torch.cat([images, images[:1].expand(short, -1, -1, -1)])
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return images

    def _call(self, network: Network, batch: Tensor, dtype: torch.dtype | None) -> Answer:
        casting = torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)
        with answerable("in its forward"), unchanged(batch), casting:
            logits, smooth = network(batch)
        found = _checked(logits, self.batch_size)
        return found, found if smooth is logits else _checked(smooth, self.batch_size)


def _quickened(model: nn.Module) -> Network:
    ask = model.both if isinstance(model, Certifiable) else _twice(model)

    def quickly(batch: Tensor) -> Answer:
        with QuickSoftplus():
            return ask(batch)

    return quickly


def _twice(model: Callable[[Tensor], Tensor]) -> Network:
    """A network whose gradients are those of its own answer."""

    def ask(batch: Tensor) -> Answer:
        answer = model(batch)
        return answer, answer

    return ask


def _checked(logits: object, rows: int) -> Tensor:
    if not isinstance(logits, Tensor):
        raise ModelError(
            f"the model returns a {type(logits).__name__}, expected a tensor of logits",
            "wrap it in a module whose forward returns the logits only",
        )
    if logits.ndim != 2 or len(logits) != rows or logits.shape[1] < 2:
        raise ModelError(
            f"the model returns shape {tuple(logits.shape)}, expected ({rows}, classes >= 2)",
            "its forward must return one row of class logits per image",
        )
    if logits.is_complex():
        raise misconduct("the model returns complex logits, which have no order")
    return logits.float()


def checked_finite(logits: Tensor) -> Tensor:
    """Logits that a verdict may rest on; NaN or Inf ends the evaluation."""
    if not bool(torch.isfinite(logits).all()):
        raise EvaluationError(
            "the model returns NaN or Inf logits",
            "check its weights and that its inputs are images in [0, 1]",
        )
    return logits
