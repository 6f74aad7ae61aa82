"""3x3 convolutions with a quarter of the multiplications: Winograd's F(4x4, 3x3) [Lavin16].

A processor convolves by the definition at nearly the rate at which it multiplies, so that only
fewer multiplications are quicker. Here 4x4 results come from 36 products, one for each entry of a
transformed 6x6 tile of the input, instead of 144. Transforming pays where there are many channels:
torch's own operations do it by matrices, code compiled for it by a few sums and from fewer channels
on. It rounds otherwise than the definition: by up to 1e-4 of the results' standard deviation.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

_STEP, _TILE = 4, 6  # the side of a tile of results, and of the tile of the input that it needs
_POINTS = _TILE * _TILE
_WASTE = 1.5  # results that tiles make over results that are wanted
_MOST = 256  # tiles of a map
# Matrix products with other numbers of rows or columns round a row by its place among them.
_WHOLE = 48  # tiles
_LANES = 16  # channels
# With fewer channels transforming costs what the products save; more tiles at once leave a core's
# cache. First for torch's own operations, second for compiled code.
_CHANNELS = (96, 64)
_TOGETHER = (48, 192)

# Interpolation at 0, 1, -1, 2, -2 and infinity. The other two matrices are below, as sums.
_OF_KERNEL = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)


def suits(layer: nn.Conv2d) -> bool:
    """Whether a layer has the form and the channels. On a GPU torch's own kernels do the like."""
    return (
        layer.kernel_size == (3, 3)
        and layer.stride == layer.dilation == layer.padding == (1, 1)
        and layer.padding_mode == "zeros"
        and layer.groups == 1
        and min(layer.in_channels, layer.out_channels) >= min(_CHANNELS)
        and layer.in_channels % _LANES == layer.out_channels % _LANES == 0
        and layer.weight.dtype == torch.float32
        and layer.weight.device.type == "cpu"
    )


def pays(images: Tensor, kernels: Tensor) -> bool:
    """Whether it is quicker: many channels, and tiles that fill maps and products."""
    if images.ndim != 4 or images.dtype != torch.float32:
        return False
    count, _, height, width = images.shape
    tiles = _tiles(height) * _tiles(width)
    wasteful = tiles * _STEP**2 > _WASTE * height * width
    wide = min(kernels.shape[1:]) >= _CHANNELS[torch.compiler.is_compiling()]
    whole = count % _rows_together(count, tiles) == 0 and count * tiles % _WHOLE == 0
    return wide and tiles <= _MOST and whole and not wasteful


def _rows_together(count: int, tiles: int) -> int:
    """How many rows of a call to convolve at once."""
    fewest = _WHOLE // math.gcd(_WHOLE, tiles)
    times = max(1, _TOGETHER[torch.compiler.is_compiling()] // (fewest * tiles))
    return min(count, fewest * times)


def kernels_of(weight: Tensor) -> Tensor:
    """What :func:`convolve` wants for a weight (O, C, 3, 3): (36, C, O)."""
    along = torch.tensor(_OF_KERNEL, dtype=torch.float64, device=weight.device)
    made = torch.einsum("ai,bj,ocij->abco", along, along, weight.detach().double())
    return made.reshape(_POINTS, *made.shape[2:]).to(weight.dtype).contiguous()


def convolve(images: Tensor, kernels: Tensor, bias: Tensor | None = None) -> Tensor:
    """The convolution of (N, C, H, W) with padding 1; its result is in channels_last layout."""
    height, width = images.shape[2:]
    down, across = _tiles(height), _tiles(width)
    margin = (0, 0, 1, _STEP * across + 1 - width, 1, _STEP * down + 1 - height)
    padded = functional.pad(images.permute(0, 2, 3, 1), margin)
    part = _by_sums if torch.compiler.is_compiling() else _by_matrices
    parts = padded.split(_rows_together(len(images), down * across))
    whole = torch.cat([part(some, kernels, down, across) for some in parts])
    whole = whole[:, :height, :width]
    return (whole if bias is None else whole + bias).permute(0, 3, 1, 2)


def _tiles(side: int) -> int:
    return -(-side // _STEP)


def _into(entries: Sequence[Tensor]) -> Tensor:
    """The transform of six entries of an input tile along one side."""
    a, b, c, d, e, f = entries
    even, odd = e - 4 * c, d - 4 * b
    near, far = e - c, 2 * (d - b)
    return torch.stack(
        [4 * a - 5 * c + e, even + odd, even - odd, near + far, near - far, 4 * b - 5 * d + f]
    )


def _back(products: Sequence[Tensor]) -> Tensor:
    """Four results from the six products along one side."""
    a, b, c, d, e, f = products
    plus, minus, far_plus, far_minus = b + c, b - c, d + e, d - e
    return torch.stack(
        [a + plus + far_plus, minus + 2 * far_minus, plus + 4 * far_plus, minus + 8 * far_minus + f]
    )


def _by_sums(padded: Tensor, kernels: Tensor, down: int, across: int) -> Tensor:
    """(N, 4 down, 4 across, O) from (N, 4 down + 2, 4 across + 2, C), for compiled code."""
    channels, results = kernels.shape[1:]
    high, wide = _STEP * down - 3, _STEP * across - 3
    columns = _into([padded[:, :, at : at + wide : _STEP] for at in range(_TILE)])
    entries = _into([columns[:, :, at : at + high : _STEP] for at in range(_TILE)])
    products = torch.bmm(entries.view(_POINTS, -1, channels), kernels)
    lines = _back(products.view(_TILE, _TILE, -1, down, across, results).unbind())
    made = _back(lines.unbind(1))  # (width of a tile, height of a tile, N, down, across, O)
    return made.permute(2, 3, 1, 4, 0, 5).reshape(-1, _STEP * down, _STEP * across, results)


def _by_matrices(padded: Tensor, kernels: Tensor, down: int, across: int) -> Tensor:
    """The same for torch's own operations, each of which passes through memory."""
    channels, results = kernels.shape[1:]
    tiles = padded.unfold(1, _TILE, _STEP).unfold(2, _TILE, _STEP)  # (N, down, across, C, 6, 6)
    entries = _INTO @ tiles.permute(4, 5, 0, 1, 2, 3).reshape(_POINTS, -1)
    products = torch.bmm(entries.view(_POINTS, -1, channels), kernels)
    made = (_BACK @ products.view(_POINTS, -1)).view(_STEP, _STEP, -1, down, across, results)
    return made.permute(2, 3, 0, 4, 1, 5).reshape(-1, _STEP * down, _STEP * across, results)


def _along_both_sides(transform: Callable[[Sequence[Tensor]], Tensor]) -> Tensor:
    matrix = transform(torch.eye(_TILE, dtype=torch.float32, device="cpu").unbind())
    return torch.kron(matrix, matrix)


_INTO, _BACK = _along_both_sides(_into), _along_both_sides(_back)  # (36, 36) and (16, 36)
