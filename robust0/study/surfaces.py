"""Landscapes: surfaces and contours of several models on one scale."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from robust0.study.drawing import canvas
from robust0.study.folder import Json


def landscape(results: Sequence[Json]) -> dict[str, Any]:
    """The surfaces and the contours, each model a column, all on one scale."""
    lowest = min(result["lowest"] for result in results)
    highest = max(result["highest"] for result in results)
    if highest <= lowest:
        highest = lowest + 1e-6
    return {
        "landscape": _surfaces(results, lowest, highest),
        "landscape-contour": _contours(results, lowest, highest),
    }


def _surfaces(results: Sequence[Json], lowest: float, highest: float) -> Any:  # noqa: ANN401
    columns = len(results) if len(results) < 4 else 2
    rows = -(-len(results) // columns)
    figure = canvas(4.6 * columns, 3.8 * rows)
    for number, result in enumerate(results):
        axes = figure.add_subplot(rows, columns, number + 1, projection="3d")
        across, along = np.meshgrid(result["steps"], result["steps"])
        axes.plot_surface(
            across, along, np.array(result["losses"]), cmap="viridis", vmin=lowest, vmax=highest,
            rstride=1, cstride=1, linewidth=0.2, edgecolor="#00000040",
        )  # fmt: skip
        axes.set_zlim(lowest, highest)
        axes.set(xlabel=_axis(1, result), ylabel=_axis(2, result), zlabel="loss")
        axes.set_title(_titled(result), fontsize=9, y=0.97)
        axes.set_box_aspect(None, zoom=0.95)
    return figure


def _contours(results: Sequence[Json], lowest: float, highest: float) -> Any:  # noqa: ANN401
    figure = canvas(3.6 * len(results) + 0.8, 3.8)
    every = figure.subplots(1, len(results), squeeze=False)[0]
    levels = np.linspace(lowest, highest, 25)
    drawn = None
    for axes, result in zip(every, results, strict=True):
        losses = np.array(result["losses"])
        drawn = axes.contourf(result["steps"], result["steps"], losses, levels, cmap="viridis")
        axes.contour(
            result["steps"], result["steps"], losses, levels[::2], colors="#ffffff60",
            linewidths=0.6,
        )  # fmt: skip
        axes.plot(0, 0, marker="x", color="white")
        axes.grid(visible=False)
        axes.set(xlabel=_axis(1, result), ylabel=_axis(2, result), aspect="equal")
        axes.set_title(_titled(result), fontsize=9)
    figure.colorbar(drawn, ax=list(every), label="loss")
    return figure


def _axis(number: int, result: Json) -> str:
    return f"{'eigenvector' if result['directions'] == 'eigenvectors' else 'direction'} {number}"


def _titled(result: Json) -> str:
    return f"{result['model']}\n{result['attack']}"
