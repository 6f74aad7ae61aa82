"""Figures of a study's parts, as PNG and SVG; the same bytes for the same result."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robust0.study import curves, surfaces
from robust0.study.drawing import canvas, colour, save_figure
from robust0.study.folder import Json
from robust0.units import plural

_STYLES = ("-", "--", ":", "-.")
_RC: dict[Any, Any] = {
    "svg.hashsalt": "robust0",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
}


def draw(document: Json, folder: Path) -> list[Path]:
    """Write the figures of a result; their paths, PNG and SVG of each."""
    import matplotlib as mpl

    drawers = {
        "spectrum": _spectrum, "landscape": surfaces.landscape, "overlap": _overlap,
        "interpolate": _interpolate, "gradients": _gradients, "training": curves.training,
    }  # fmt: skip
    part = document["part"]
    paths = []
    with mpl.rc_context(_RC):
        for name, figure in drawers[part](document["results"]).items():
            paths += save_figure(figure, folder / name)
    return paths


def _spectrum(results: Sequence[Json]) -> dict[str, Any]:
    dense = [result for result in results if result.get("density")]
    figure = canvas(6, 4)
    axes = figure.subplots()
    models = list(dict.fromkeys(result["model"] for result in results))
    attacks = list(dict.fromkeys(result["attack"] for result in results))
    for result in results:
        number = (
            models.index(result["model"]) if len(models) > 1 else attacks.index(result["attack"])
        )
        places = range(1, len(result["values"]) + 1)
        axes.plot(
            places, result["values"], marker="o", markersize=4, color=colour(number),
            linestyle=_STYLES[attacks.index(result["attack"]) % len(_STYLES)],
            label=_named(result, several=len(attacks) > 1),
        )  # fmt: skip
    if all(value > 0 for result in results for value in result["values"]):
        axes.set_yscale("log")
    axes.set(xlabel="eigenvalue, from the largest", ylabel="value")
    axes.set_title(_shared("Hessian of the loss in the weights", attacks), fontsize=10)
    axes.legend(fontsize="small")
    figures = {"spectrum": figure}
    if dense:
        figures["spectrum-density"] = _densities(dense, models, several=len(attacks) > 1)
    return figures


def _densities(results: Sequence[Json], models: list[str], *, several: bool) -> Any:  # noqa: ANN401
    from robust0.study.spectrum import SpectralDensity

    figure = canvas(6, 4)
    axes = figure.subplots()
    nodes = np.concatenate([result["density"]["nodes"] for result in results])
    low, high = float(nodes.min()), float(nodes.max())
    width = (high - low) / 100
    grid = np.linspace(low - 4 * width, high + 4 * width, 1000)
    for result in results:
        found = result["density"]
        density = SpectralDensity(tuple(found["nodes"]), tuple(found["weights"]), 0)
        axes.plot(
            grid, density.smoothed(grid, width), color=colour(models.index(result["model"])),
            label=_named(result, several=several),
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylim(bottom=1e-9)
    axes.set(xlabel="eigenvalue", ylabel="density")
    axes.set_title("Density of the whole spectrum (stochastic Lanczos)", fontsize=10)
    axes.legend(fontsize="small")
    return figure


def _overlap(results: Sequence[Json]) -> dict[str, Any]:
    figure = canvas(9, 2.6 * len(results) + 0.6)
    rows = figure.subplots(len(results), 2, squeeze=False)
    for number, (pair, result) in enumerate(zip(rows, results, strict=True)):
        for axes, name, label in zip(
            pair,
            ("distance", "overlap"),
            (
                "normalised l0 distance",
                f"share of the second's {plural(result['unit'])} in the first",
            ),
            strict=True,
        ):
            values, mean = result["values"][name], result["mean"][name]
            axes.hist(values, bins=np.linspace(-0.025, 1.025, 22), color=colour(number), alpha=0.8)
            axes.axvline(
                result["chance"][name], color="black", linestyle="--",
                label=f"by chance {result['chance'][name]:.3f}",
            )  # fmt: skip
            axes.axvline(mean, color="tab:red", label=f"mean {mean:.3f}")
            axes.set(xlabel=label, ylabel="images", xlim=(-0.03, 1.03))
            axes.legend(fontsize="small")
        pair[0].set_title(result["model"], fontsize=9, loc="left")
        pair[1].set_title(f"{result['first']} / {result['second']}", fontsize=7, loc="right")
    return {"overlap": figure}


def _interpolate(results: Sequence[Json]) -> dict[str, Any]:
    figure = canvas(6, 4)
    axes = figure.subplots()
    attacks = list(dict.fromkeys(result["attack"] for result in results))
    models = list(dict.fromkeys(result["model"] for result in results))
    for result in results:
        tone = colour(models.index(result["model"]))
        axes.plot(
            result["shares"], [100 * value for value in result["accuracy"]], marker="o",
            color=tone, linestyle=_STYLES[attacks.index(result["attack"]) % len(_STYLES)],
            label=_named(result, several=len(attacks) > 1),
        )  # fmt: skip
        worst = (result.get("audit") or {}).get("saa")
        if worst is not None:
            axes.plot([1.06], [100 * worst], marker="*", markersize=11, color=tone)
    if any((result.get("audit") or {}).get("saa") is not None for result in results):
        axes.text(1.06, -8, "sAA", ha="center", va="top", fontsize=8)
    axes.set(xlabel="share of the perturbation", ylabel="accuracy (%)", ylim=(-5, 105))
    axes.set_title(_shared("x + share * perturbation", attacks), fontsize=10)
    axes.legend(fontsize="small")
    return {"interpolate": figure}


def _gradients(results: Sequence[Json]) -> dict[str, Any]:
    figure = canvas(9, 3.6)
    left, right = figure.subplots(1, 2)
    epochs = [result.get("epoch") for result in results]
    over_time = len(set(epochs)) > 1 and None not in epochs
    for axes, key, name in ((left, "batch", "per batch"), (right, "image", "per image")):
        shown = [result for result in results if result[key]]
        if over_time:
            values = [result[key]["mean"]["distance"] for result in shown]
            axes.plot([r["epoch"] for r in shown], values, marker="o", color=colour(0))
            axes.set(xlabel="epoch")
        else:
            for place, result in enumerate(shown):
                values = result[key]["distances"]
                spread = np.linspace(-0.2, 0.2, len(values)) if len(values) > 1 else [0]
                axes.scatter(place + np.array(spread), values, s=8, alpha=0.5, color=colour(place))
                axes.plot(
                    [place - 0.3, place + 0.3], [result[key]["mean"]["distance"]] * 2,
                    color="black", linewidth=1.5,
                )  # fmt: skip
            axes.set_xticks(range(len(shown)))
            axes.set_xticklabels([result["model"] for result in shown], rotation=20, ha="right")
        axes.set(ylabel="l2 distance of gradients", yscale="log")
        axes.set_title(f"{name}; lines are means" if not over_time else name, fontsize=10)
    return {"gradients": figure}


def _named(result: Json, *, several: bool) -> str:
    return f"{result['model']}, {result['attack']}" if several else str(result["model"])


def _shared(title: str, attacks: list[str]) -> str:
    return f"{title}\n{attacks[0]}" if len(attacks) == 1 else title
