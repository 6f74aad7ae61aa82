"""3x3 convolutions with a quarter of the multiplications: Winograd's F(4x4, 3x3) [Lavin16].

A processor convolves by the definition at nearly the rate at which it multiplies, so that only
fewer multiplications are quicker. Here 4x4 results come from 36 products, one for each entry of a
transformed 6x6 tile of the input, instead of 144. Transforming pays where there are many channels.
It rounds differently from the definition: by up to 1e-4 of the results' standard deviation.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

_STEP, _TILE = 4, 6  # the side of a tile of results, and of the tile of the input that it needs
_POINTS = _TILE * _TILE
_WASTE = 1.5  # results that tiles make over results that are wanted
_MOST = 256  # tiles of a map
_CHANNELS = 96  # with fewer, transforming costs what the products save
# Matrix products with other numbers of rows or columns round a row by its place among them.
_WHOLE = 48  # tiles; more at once would leave a core's cache
_LANES = 16  # channels

# Interpolation at 0, 1, -1, 2, -2 and infinity: a kernel, a tile of the input and back.
_OF_KERNEL = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
_OF_TILE = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
_OF_PRODUCTS = (
    (1, 1, 1, 1, 1, 0),
    (0, 1, -1, 2, -2, 0),
    (0, 1, 1, 4, 4, 0),
    (0, 1, -1, 8, -8, 1),
)


def suits(layer: nn.Conv2d) -> bool:
    """Whether a layer has the form and the channels. On a GPU torch's own kernels do the like."""
    return (
        layer.kernel_size == (3, 3)
        and layer.stride == layer.dilation == layer.padding == (1, 1)
        and layer.padding_mode == "zeros"
        and layer.groups == 1
        and min(layer.in_channels, layer.out_channels) >= _CHANNELS
        and layer.in_channels % _LANES == layer.out_channels % _LANES == 0
        and layer.weight.dtype == torch.float32
        and layer.weight.device.type == "cpu"
    )


def pays(images: Tensor) -> bool:
    """Whether it is quicker for these: tiles must fill the maps and the products."""
    if images.ndim != 4 or images.dtype != torch.float32:
        return False
    count, _, height, width = images.shape
    tiles = _tiles(height) * _tiles(width)
    wasteful = tiles * _STEP**2 > _WASTE * height * width
    return tiles <= _MOST and count % _rows_together(tiles) == 0 and not wasteful


def kernels_of(weight: Tensor) -> Tensor:
    """What :func:`convolve` wants for a weight (O, C, 3, 3): (36, C, O)."""
    results, channels = weight.shape[:2]
    along = torch.tensor(_OF_KERNEL, dtype=torch.float64, device=weight.device)
    entries = weight.detach().double().permute(2, 3, 1, 0).reshape(9, -1)
    made = torch.kron(along, along) @ entries
    return made.to(weight.dtype).view(_POINTS, channels, results)


def convolve(images: Tensor, kernels: Tensor, bias: Tensor | None = None) -> Tensor:
    """The convolution of (N, C, H, W) with padding 1; its result is in channels_last layout."""
    height, width = images.shape[2:]
    down, across = _tiles(height), _tiles(width)
    margin = (0, 0, 1, _STEP * across + 1 - width, 1, _STEP * down + 1 - height)
    padded = functional.pad(images.permute(0, 2, 3, 1), margin)
    parts = padded.split(_rows_together(down * across))
    whole = torch.cat([_of_rows(part, kernels, down, across) for part in parts])
    whole = whole[:, :height, :width]
    return (whole if bias is None else whole + bias).permute(0, 3, 1, 2)


def convolve_small(maps: Tensor, kernels: Tensor, bias: Tensor) -> Tensor:
    """The convolution of maps (N, C, 4, 4) with padding 1: one tile each, its margin all zeros.

    The result lies in memory position by position, as the next such convolution wants it.
    """
    count, channels = maps.shape[:2]
    spots = maps.permute(2, 3, 0, 1).reshape(_STEP**2, -1)  # a copy, unless it lies so already
    products = torch.bmm((_INTO_SMALL @ spots).view(_POINTS, count, channels), kernels)
    made = (_BACK @ products.view(_POINTS, -1)).view(_STEP, _STEP, count, -1)
    return made.add_(bias).permute(2, 3, 0, 1)


def _tiles(side: int) -> int:
    return -(-side // _STEP)


def _rows_together(tiles: int) -> int:
    """The fewest rows, of this many tiles each, that make whole products."""
    return _WHOLE // math.gcd(_WHOLE, tiles)


def _of_rows(padded: Tensor, kernels: Tensor, down: int, across: int) -> Tensor:
    """(N, 4 down, 4 across, O) from (N, 4 down + 2, 4 across + 2, C)."""
    channels, results = kernels.shape[1:]
    tiles = padded.unfold(1, _TILE, _STEP).unfold(2, _TILE, _STEP)  # (N, down, across, C, 6, 6)
    entries = _INTO @ tiles.permute(4, 5, 0, 1, 2, 3).reshape(_POINTS, -1)
    products = torch.bmm(entries.view(_POINTS, -1, channels), kernels)
    made = (_BACK @ products.view(_POINTS, -1)).view(_STEP, _STEP, -1, down, across, results)
    return made.permute(2, 3, 0, 4, 1, 5).reshape(-1, _STEP * down, _STEP * across, results)


def _along_both_sides(rows: Sequence[Sequence[float]]) -> Tensor:
    matrix = torch.tensor(rows, dtype=torch.float32, device="cpu")
    return torch.kron(matrix, matrix)


_INTO, _BACK = _along_both_sides(_OF_TILE), _along_both_sides(_OF_PRODUCTS)  # (36, 36), (16, 36)
# Of a map of 4x4 the tile's outermost entries are padding.
_INTO_SMALL = _INTO.view(_POINTS, _TILE, _TILE)[:, 1:-1, 1:-1].reshape(_POINTS, -1)  # (36, 16)
