"""The run-off vote: the two classes with most votes, then every view chooses between these two."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from robust0.certificates.votes import CertifiedAnswer, vote_keys


def run_off(scores: Tensor) -> CertifiedAnswer:
    """The answer of the run-off and its exact certified radius in views.

    The rule is that of Hammoudeh & Lowd (arXiv 2302.11628). A view's scores rank the classes; it
    votes for its first and prefers, of any two, the higher ranked. Answer y, votes n.

    The answer changes if and only if one of two things happens.

    1. Two classes get ahead of y, which then misses the run-off.
    2. Some c gets ahead of every class but y, and more views prefer c to y than y to c, or as many
       and c is the smaller label. Then c is in the run-off, and y loses it or is not in it.

    DEVIATES from the paper: its bound for the second is a lower bound, ours is exact. The radius
    is never smaller than theirs.

    Args:
        scores: (B, T, K) int64, for example quantised logits.
    """
    keys = vote_keys(scores)
    ballots = one_hot(keys.argmax(dim=2), scores.shape[2])
    counts = ballots.sum(dim=1)
    labels = _winner(keys, vote_keys(counts))
    prefers = keys.gather(2, labels[:, None, None].expand(-1, scores.shape[1], 1)) > keys
    broken = torch.minimum(_knocked_out(counts, labels), _beaten(counts, ballots, prefers, labels))
    return CertifiedAnswer(labels, broken - 1)


def _winner(keys: Tensor, order: Tensor) -> Tensor:
    """Who wins between the two classes that come first in ``order`` (B, K)."""
    finalists = order.topk(2, dim=1).indices.sort(dim=1).values  # the smaller label first
    held = keys.gather(2, finalists[:, None].expand(-1, keys.shape[1], -1))
    for_smaller = (held[..., 0] > held[..., 1]).sum(dim=1)
    larger_wins = 2 * for_smaller < keys.shape[1]
    return finalists.gather(1, larger_wins[:, None].to(torch.int64))[:, 0]


def _knocked_out(counts: Tensor, labels: Tensor) -> Tensor:
    """The fewest changed views that put two classes ahead of the label.

    Let g_c = max(0, n_y - n_c + [c > y]), the ground c has to make up. A changed view closes at
    most 2 of one g, 2 of the other and 3 of their sum, so r >= g/2, g'/2 and (g + g')/3. These
    suffice: turn r views from y, a of them to one class and r - a to the other. That closes r + a
    and 2 r - a, and an a with r + a >= g and 2 r - a >= g' exists. The bounds grow with g and g',
    so the two smallest decide.

    There are always enough views to turn. y has a vote, or all views would have voted for the
    other finalist and kept to it. With two votes or more, n_y is at least what is asked for. With
    one, two views may be asked for; any second view does, since only one of ground is then left.
    A single view alone is turned by the other clause.
    """
    if counts.shape[1] < 3:
        return torch.full_like(labels, torch.iinfo(labels.dtype).max)
    lead = counts.gather(1, labels[:, None]) - counts
    ground = (lead + _after(labels, counts.shape[1])).clamp(min=0)
    rivals = ground.scatter(1, labels[:, None], torch.iinfo(ground.dtype).max)
    near, far = rivals.topk(2, dim=1, largest=False).values.unbind(dim=1)
    return torch.maximum(_halved(far), (near + far + 2).div(3, rounding_mode="floor"))


def _beaten(counts: Tensor, ballots: Tensor, prefers: Tensor, labels: Tensor) -> Tensor:
    """The fewest changed views that put some c ahead of all but the label, and above the label.

    A changed view that ranks c first does c the most good in both respects, so all r of them do,
    and none of them had voted for c (such a view prefers c already). Then n_c + r faces n_v - x_v,
    where x_v changed views had voted for v, so x_v >= need_v = max(0, n_v - n_c - r + [v < c]) for
    each v other than c and y. The run-off needs q views that preferred y to c, where q is half of
    (those that do) - (those that do not) + [y < c], rounded up.

    Of the voters for v, liked_v prefer y to c. If all of these go first, at least
    max(0, need_v - liked_v) of the r views are no use in the run-off, and no more have to be. So r
    views suffice if and only if sum need_v <= r and q + sum max(0, need_v - liked_v) <= r. Both
    sums fall as r grows: the fewest is the number of r that do not suffice.
    """
    views, classes = ballots.shape[1:]
    columns = torch.arange(classes, device=counts.device)
    lost = 2 * prefers.sum(dim=1) - views + _after(labels, classes)
    turned = _halved(lost.clamp(min=0))  # (B, c)
    liked = torch.einsum("btc,btv->bcv", prefers.to(torch.int64), ballots)
    behind = counts[:, None] - counts[:, :, None] + (columns < columns[:, None]).to(torch.int64)
    absent = (columns == columns[:, None]) | (columns == labels[:, None, None])  # v is c, v is y
    behind = behind.masked_fill(absent, -views)
    fewest = torch.zeros_like(turned)
    for changed in range(views):
        need = (behind - changed).clamp(min=0)
        wasted = (need - liked).clamp(min=0).sum(dim=2)
        enough = (need.sum(dim=2) <= changed) & (turned + wasted <= changed)
        if bool(enough.all()):
            break
        fewest += ~enough
    return fewest.scatter(1, labels[:, None], torch.iinfo(fewest.dtype).max).amin(dim=1)


def _after(labels: Tensor, classes: int) -> Tensor:
    """(B, K) int64: one for the classes that lose a tie against the label."""
    return (torch.arange(classes, device=labels.device) > labels[:, None]).to(torch.int64)


def _halved(ground: Tensor) -> Tensor:
    """Half, rounded up."""
    return (ground + 1).div(2, rounding_mode="floor")
