"""Every image of a few pixels and few colours, and networks whose float sums are exact."""

from itertools import combinations_with_replacement, product

import torch


def every_image(height, width, colours):
    """(N, 1, H, W) with the colours 0, 1, ..., as exact floats."""
    cells = list(product(range(colours), repeat=height * width))
    return torch.tensor(cells, dtype=torch.float32).reshape(-1, 1, height, width)


def distances(images):
    """(N, N) how many pixels differ."""
    flat = images.flatten(1)
    return (flat[:, None] != flat[None]).sum(dim=2)


def nearest_other(labels, apart):
    """For each, the distance to the nearest with another label; a large number if there is none."""
    other = labels[:, None] != labels[None]
    return apart.masked_fill(~other, 10**6).amin(dim=1)


class ExactNetwork:
    """Two layers of small integer weights: every sum is exact, in any order and any batch."""

    def __init__(self, inputs, classes, seed, hidden=6):
        draw = torch.Generator().manual_seed(seed)
        self.inner = torch.randint(-3, 4, (inputs, hidden), generator=draw).float()
        self.bias = torch.randint(-2, 3, (hidden,), generator=draw).float()
        self.outer = torch.randint(-3, 4, (hidden, classes), generator=draw).float()

    def __call__(self, views):
        """(..., C, h, w) to (..., K) logits."""
        return (views.flatten(-3) @ self.inner + self.bias).relu() @ self.outer


def ballot_boxes(ballots, views):
    """Every multiset of ``views`` ballots: counts (N, ballots), and indices (N, views)."""
    boxes = torch.tensor(list(combinations_with_replacement(range(ballots), views)))
    return torch.nn.functional.one_hot(boxes, ballots).sum(dim=1), boxes


def changed_views(counts):
    """(N, N) how many views must change to turn one multiset into the other."""
    rows = [torch.minimum(row, counts).sum(dim=1) for row in counts]
    return int(counts[0].sum()) - torch.stack(rows)
