"""Classifiers that can be certified: an inner network that sees parts of an image, and a rule.

The inner network takes C + 1 channels, hidden pixels at zero, the last channel marking real ones.
The answer about a part does not depend on the company of its call: the views of an image are one
call, other parts are seen in calls of one fixed number of rows, short tails padded.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from robust0.certificates import masks as covers
from robust0.certificates import votes
from robust0.certificates.ablation import Ablation
from robust0.certificates.partition import Partition, StridedPartition, hide
from robust0.certificates.runoff import run_off
from robust0.certificates.votes import CertifiedAnswer
from robust0.errors import EvaluationError

Rule = Literal["plurality", "run-off", "soft"]
Purpose = Literal["choose", "bound", "answer"]

_EXACT = 2**24  # float32 holds every integer up to here
_ROWS = 4  # masked images that make one call, at least
_SMOOTH = 0.9  # of the distance between two integer scores, for what breaks their ties
_FIRST = {"choose": 0, "bound": 1 << 28, "answer": 1 << 29}  # where a purpose's samples begin


class Certifiable(nn.Module, ABC):
    """Images (B, C, H, W) in [0, 1] in, integer scores (B, K) out, as exact float32.

    The label is the argmax of the scores, ties already broken. Gradients flow through
    :meth:`surrogate` alone.
    """

    kind: ClassVar[str]

    def __init__(self, network: nn.Module, classes: int) -> None:
        super().__init__()
        # A fifth quicker on small maps of many channels; one layout is one rounding.
        self.network = network.to(memory_format=torch.channels_last)
        self.classes = classes

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """(B, K) scores."""

    @abstractmethod
    def surrogate(self, images: Tensor) -> Tensor:
        """(B, K) log of the mean probability over the parts: smooth, and not the classifier."""

    def both(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(B, K) twice: what a search without gradients may climb, and the surrogate.

        The first has the argmax of forward. Integer votes are flat almost everywhere; the mean
        probability moves them by less than their distance, so that it orders images whose votes
        are equal and no others.
        """
        smooth = self.surrogate(images)
        return _climbed(self(images), smooth.detach()), smooth

    def _in_rows(self, parts: Tensor, rows: int) -> Tensor:
        """Logits (N, K) of parts (N, C + 1, h, w), in calls of exactly ``rows``."""
        answers = []
        for some in parts.split(rows):
            short = rows - len(some)
            full = torch.cat([some, some[:1].expand(short, -1, -1, -1)]) if short else some
            logits: Tensor = self.network(full.contiguous(memory_format=torch.channels_last))
            answers.append(logits[: len(some)].float())
        return torch.cat(answers) if answers else parts.new_zeros(0, self.classes)

    def _scores(self, counts: Tensor) -> Tensor:
        """Keys K n_c + (K - 1 - c): the order of the counts, the smaller label first of equals."""
        return (votes.vote_keys(counts) + self.classes - 1).to(torch.float32)


class ViewVoting(Certifiable):
    """Disjoint views of the image, classified one by one; their votes decide."""

    kind: ClassVar[str] = "partition-vote"

    def __init__(
        self,
        network: nn.Module,
        partition: Partition,
        rule: Rule,
        classes: int,
        *,
        mirror: bool = False,
    ) -> None:
        """``mirror`` adds the logits of each view's mirror image, which shows the same pixels."""
        super().__init__(network, classes)
        self.partition, self.rule, self.mirror = partition, rule, mirror
        self.whole = min(4096, _EXACT // (classes * partition.views) - 1)
        if self.whole < 1:
            raise EvaluationError(
                f"{partition.views} views and {classes} classes are too many for exact scores",
                "use fewer views",
            )

    def view_logits(self, images: Tensor) -> Tensor:
        """(B, T, K) float32: what the network says of each view."""
        views, answer = self.partition.split(images), self._answering(images)
        # SAFETY: one image per call. Products of matrices may round a row by its place among them.
        logits = [answer(of_one) for of_one in views]
        if self.mirror:
            mirrored = (answer(of_one) for of_one in views.flip(4))
            logits = [one + other for one, other in zip(logits, mirrored, strict=True)]
        return torch.stack(logits) if logits else images.new_zeros(0, views.shape[1], self.classes)

    def _answering(self, images: Tensor) -> Callable[[Tensor], Tensor]:
        """The network, or its quicker form where weights stand still and need no gradient."""
        network = self.network
        wanted = torch.is_grad_enabled() and any(w.requires_grad for w in network.parameters())
        narrow = torch.is_autocast_enabled(images.device.type)
        settled = getattr(network, "settled", None)
        ask = network if settled is None or network.training or wanted or narrow else settled()

        def answer(views: Tensor) -> Tensor:
            logits: Tensor = ask(views.contiguous(memory_format=torch.channels_last))
            return logits.float()

        return answer

    def decide(self, view_logits: Tensor) -> CertifiedAnswer:
        """The label and its certified radius under the rule, in integers."""
        if self.rule == "run-off":
            return run_off(votes.quantised(view_logits))
        if self.rule == "soft":
            return votes.soft(self._portions(view_logits), self.whole)
        ballots = votes.leader(votes.quantised(view_logits))
        return votes.plurality(ballots, self.classes)

    def forward(self, images: Tensor) -> Tensor:
        """Votes as keys; the winner of a second round changes places with the leader."""
        return self.scores(self.view_logits(images))

    def scores(self, view_logits: Tensor) -> Tensor:
        """(B, K) float32 scores whose argmax is the label of :meth:`decide`."""
        if self.rule == "soft":
            return self._scores(self._portions(view_logits).sum(dim=1))
        ballots = votes.leader(votes.quantised(view_logits))
        counts = torch.nn.functional.one_hot(ballots, self.classes).sum(dim=1)
        scores = self._scores(counts)
        return scores if self.rule == "plurality" else _on_top(scores, self.decide(view_logits))

    def surrogate(self, images: Tensor) -> Tensor:
        """Log of the mean over views of their probabilities."""
        return _log_mean(self.view_logits(images))

    def both(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """As for every such classifier, with the views classified once."""
        logits = self.view_logits(images)
        smooth = _log_mean(logits)
        return _climbed(self.scores(logits.detach()), smooth.detach()), smooth

    def _portions(self, view_logits: Tensor) -> Tensor:
        return votes.shares(view_logits.double().softmax(dim=2), self.whole)


class AblationSmoothing(Certifiable):
    """The class seen most often when ``keep`` random pixels are all that is shown.

    The smoothed classifier of the certificate has all masks; this module answers with ``samples``
    of them, drawn by the content of the image, so that it is a function of the image.
    """

    kind: ClassVar[str] = "ablation"

    def __init__(
        self, network: nn.Module, keep: int, classes: int, *, seed: int = 0, samples: int = 100
    ) -> None:
        super().__init__(network, classes)
        self.keep, self.seed, self.samples = keep, seed, samples

    def ablated(self, images: Tensor, ids: Tensor, samples: range, purpose: Purpose) -> Tensor:
        """(B * n, C + 1, H, W): each image under n masks, a function of id, number and purpose."""
        count, _, height, width = images.shape
        rule = Ablation(pixels=height * width, keep=self.keep, seed=self.seed)
        numbers = torch.tensor(samples, device=ids.device) + _FIRST[purpose]
        shown = rule.visible(ids.repeat_interleave(len(numbers)), numbers.repeat(count))
        visible = shown.view(-1, 1, height, width).to(images.device)
        return hide(images.repeat_interleave(len(numbers), dim=0), visible)

    def counts(self, images: Tensor, ids: Tensor, samples: range, purpose: Purpose) -> Tensor:
        """(B, K) int64: how often each class was seen under the masks of these numbers.

        Purposes have masks of their own: those that bound a class are not those that chose it.
        Counts of adjoining ranges add up.
        """
        labels = votes.leader(votes.quantised(self._sampled(images, ids, samples, purpose)))
        return torch.nn.functional.one_hot(labels, self.classes).sum(dim=1)

    def forward(self, images: Tensor) -> Tensor:
        """Counts as keys, under masks that the content of each image names."""
        masks = range(self.samples)
        return self._scores(self.counts(images, content_ids(images), masks, "answer"))

    def surrogate(self, images: Tensor) -> Tensor:
        """Log of the mean probability under the masks of the answer."""
        masks = range(self.samples)
        return _log_mean(self._sampled(images, content_ids(images), masks, "answer"))

    def _sampled(self, images: Tensor, ids: Tensor, samples: range, purpose: Purpose) -> Tensor:
        """(B, n, K) logits; masked images are made one image's worth at a time."""
        rows = max(_ROWS, min(len(samples), 64))
        answers = [
            self._in_rows(self.ablated(image[None], name[None], samples, purpose), rows)
            for image, name in zip(images, ids, strict=True)
        ]
        return torch.stack(answers)


class MaskCover(Certifiable):
    """Double masking: the class that stays when any ``pixels`` of the lattices are hidden."""

    kind: ClassVar[str] = "masks"

    def __init__(
        self, network: nn.Module, lattices: StridedPartition, pixels: int, classes: int
    ) -> None:
        super().__init__(network, classes)
        self.lattices, self.pixels = lattices, pixels
        self.groups = lattices.views
        self.cover = covers.DoubleMasking(lattices=self.groups, pixels=pixels)

    def mask_logits(self, images: Tensor, masks: list[covers.Mask]) -> Tensor:
        """(B, M, K): each image with the lattices of each mask hidden."""
        height, width = images.shape[2:]
        shown = covers.visible_pixels(self.lattices.owner(), masks).to(images.device)
        visible = shown.view(-1, 1, height, width)
        return torch.stack([self._in_rows(hide(image[None], visible), _ROWS) for image in images])

    def decide(self, images: Tensor) -> CertifiedAnswer:
        """The label, and ``pixels`` as its radius where every union of two masks shows it."""
        unions = list(self.cover.unions())
        tables = self._tables(images, unions)
        labels, radius = [], []
        for table in tables:
            answer = self.cover.answer(table).label
            proved = self.cover.certify(table).label == answer
            labels.append(answer)
            radius.append(self.pixels if proved else 0)
        return CertifiedAnswer(*(torch.tensor(v, device=images.device) for v in (labels, radius)))

    def forward(self, images: Tensor) -> Tensor:
        """Counts of the first round as keys; the answer changes places with the leader."""
        first = votes.leader(votes.quantised(self.mask_logits(images, list(self.cover.masks()))))
        counts = torch.nn.functional.one_hot(first, self.classes).sum(dim=1)
        scores = self._scores(counts)
        labels = scores.argmax(dim=1)
        for row in (first != first[:, :1]).any(dim=1).nonzero()[:, 0].tolist():
            (table,) = self._tables(images[row : row + 1], list(self.cover.unions()))
            labels[row] = int(self.cover.answer(table).label or 0)
        return _on_top(scores, CertifiedAnswer(labels, torch.zeros_like(labels)))

    def surrogate(self, images: Tensor) -> Tensor:
        """Log of the mean probability under single masks."""
        return _log_mean(self.mask_logits(images, list(self.cover.masks())))

    def _tables(self, images: Tensor, masks: list[covers.Mask]) -> list[covers.Classify]:
        """For each image, the labels of masks looked up."""
        labels = votes.leader(votes.quantised(self.mask_logits(images, masks))).tolist()
        return [_looked_up(dict(zip(masks, row, strict=True))) for row in labels]


def _looked_up(labels: dict[covers.Mask, int]) -> covers.Classify:
    return lambda asked: [labels[mask] for mask in asked]


def content_ids(images: Tensor) -> Tensor:
    """(B,) int64 of 48 bits: a hash of the bytes of each image."""
    rows = (images.detach().to(torch.float32) + 0.0).cpu().contiguous()  # one zero, not two
    digests = [hashlib.blake2b(row.numpy().tobytes(), digest_size=6).digest() for row in rows]
    names = [int.from_bytes(digest, "little") for digest in digests]
    return torch.tensor(names, dtype=torch.int64, device=images.device)


def _log_mean(logits: Tensor) -> Tensor:
    """(B, K) log of the mean over parts (B, T, K) of their probabilities."""
    return logits.log_softmax(dim=2).logsumexp(dim=1) - torch.tensor(logits.shape[1]).log()


def _climbed(scores: Tensor, surrogate: Tensor) -> Tensor:
    """Logs of the scores, relative to the largest: a share of the votes, as the surrogate is."""
    mixed = scores + 1 + _SMOOTH * surrogate.exp().clamp(0, 1)
    top = mixed.amax(dim=1, keepdim=True)
    return ((mixed - top) / top).log1p()


def _on_top(scores: Tensor, decided: CertifiedAnswer) -> Tensor:
    """Scores with those of the leader and of the answer exchanged."""
    leader, label = scores.argmax(dim=1, keepdim=True), decided.labels[:, None]
    high, low = scores.gather(1, leader), scores.gather(1, label)
    return scores.scatter(1, leader, low).scatter(1, label, high)
