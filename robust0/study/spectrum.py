"""The largest eigenvalues of a Hessian, and the density of all of them, from few products."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robust0.errors import RecipeError
from robust0.study.hessian import Hessian
from robust0.study.weights import random_vector

Which = Literal["largest", "magnitude"]
_ARPACK = {"largest": "LA", "magnitude": "LM"}
TOLERANCE = 1e-3  # of a residual; the error of an eigenvalue is of the order of its square
PRODUCTS = 60  # the most that a search may cost

Tick = Callable[[int, int], None]  # products so far, the most there can be


@dataclass(frozen=True, slots=True)
class Eigenpairs:
    """Eigenvalues, largest first, with unit eigenvectors whose largest entry is positive."""

    values: tuple[float, ...]
    vectors: Tensor  # (n, P) float64
    asked: int  # fewer values than this: the others had not converged
    products: int


@dataclass(frozen=True, slots=True)
class SpectralDensity:
    """A probability measure that stands for the whole spectrum: nodes and their weights."""

    nodes: tuple[float, ...]
    weights: tuple[float, ...]  # sum to one
    products: int

    def smoothed(self, grid: NDArray[np.float64], width: float) -> NDArray[np.float64]:
        """The density on a grid, every node a Gaussian of this standard deviation."""
        gaps = (grid[:, None] - np.array(self.nodes)) / width
        bumps = np.exp(-0.5 * gaps**2) / (width * np.sqrt(2 * np.pi))
        return bumps @ np.array(self.weights)  # type: ignore[no-any-return]


def top_eigenpairs(
    hessian: Hessian,
    count: int = 10,
    *,
    which: Which = "largest",
    seed: int = 0,
    products: int = PRODUCTS,
    tolerance: float = TOLERANCE,
    tick: Tick | None = None,
) -> Eigenpairs:
    """The top eigenvalues by implicitly restarted Lanczos (ARPACK).

    Args:
        hessian: what to multiply with; its own counter goes up too.
        count: how many eigenvalues.
        which: the algebraically largest, or those of the largest magnitude.
        seed: of the start vector.
        products: the most Hessian products this may cost.
        tolerance: relative size of a residual at which an eigenpair counts as found.
        tick: told after every product.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    size, before = hessian.size, hessian.products
    basis = min(size, max(2 * count + 5, 20))
    if count < 1 or count >= size:
        raise RecipeError(
            f"{count} eigenvalues were asked for, the network has {size} weights",
            "ask for at least 1 and fewer than there are weights",
        )
    # The first sweep costs basis + 1 products, every restart at most basis - count more.
    restarts = (products - basis - 1) // (basis - count)
    if restarts < 1:
        raise RecipeError(
            f"{count} eigenvalues may need {2 * basis + 1 - count} Hessian products, "
            f"{products} are allowed",
            "allow more, or ask for fewer eigenvalues",
        )

    def product(vector: NDArray[np.float64]) -> NDArray[np.float64]:
        answer = hessian @ torch.from_numpy(vector.reshape(-1).copy())
        if tick is not None:
            tick(hessian.products - before, products)
        return answer.numpy()

    operator = LinearOperator((size, size), matvec=product, dtype=np.float64)
    try:
        values, vectors = eigsh(
            operator, k=count, which=_ARPACK[which], ncv=basis, tol=tolerance,
            v0=random_vector(size, "lanczos", seed).numpy(), maxiter=restarts,
        )  # fmt: skip
    except ArpackNoConvergence as unfinished:
        values, vectors = unfinished.eigenvalues, unfinished.eigenvectors
    order = np.argsort(-np.abs(values) if which == "magnitude" else -values, kind="stable")
    rows = torch.from_numpy(np.ascontiguousarray(vectors.T[order]))
    return Eigenpairs(
        tuple(float(values[place]) for place in order), _signed(rows), count,
        hessian.products - before,
    )  # fmt: skip


def _signed(vectors: Tensor) -> Tensor:
    """Each row with its largest entry positive: an eigenvector's sign is a matter of luck."""
    if not len(vectors):
        return vectors
    peak = vectors.abs().argmax(dim=1, keepdim=True)
    return vectors * vectors.gather(1, peak).sign()


def spectral_density(
    hessian: Hessian, *, steps: int = 20, probes: int = 2, seed: int = 0, tick: Tick | None = None
) -> SpectralDensity:
    """Stochastic Lanczos quadrature [Ubaru17]: random probes, each a small tridiagonal matrix.

    Costs ``steps * probes`` Hessian products.
    """
    if steps < 1 or probes < 1:
        raise RecipeError("a density needs at least one step and one probe", "use 1 or more")
    before, total = hessian.products, steps * probes
    nodes: list[float] = []
    weights: list[float] = []
    for probe in range(probes):
        start = random_vector(hessian.size, "density", seed, probe)
        values, masses = _quadrature(
            hessian, start, steps, lambda: tick and tick(hessian.products - before, total)
        )
        nodes += values
        weights += [mass / probes for mass in masses]
    return SpectralDensity(tuple(nodes), tuple(weights), hessian.products - before)


def _quadrature(
    hessian: Hessian, start: Tensor, steps: int, told: Callable[[], object]
) -> tuple[list[float], list[float]]:
    """Gauss nodes and weights of one probe; Lanczos with full reorthogonalisation."""
    basis = [start / start.norm()]
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(min(steps, hessian.size)):
        image = hessian @ basis[-1]
        told()
        diagonal.append(float(image @ basis[-1]))
        for _ in range(2):  # twice is enough
            for known in basis:
                image = image - (image @ known) * known
        norm = float(image.norm())
        if norm < 1e-8 * max(abs(value) for value in [1e-30, *diagonal, *beside]):
            break  # the probe lies in a space of this dimension
        beside.append(norm)
        basis.append(image / norm)
    matrix = np.diag(diagonal)
    for place, value in enumerate(beside[: len(diagonal) - 1]):
        matrix[place, place + 1] = matrix[place + 1, place] = value
    values, vectors = np.linalg.eigh(matrix)
    return values.tolist(), (vectors[0] ** 2).tolist()
