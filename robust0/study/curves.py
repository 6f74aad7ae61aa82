"""Training runs side by side: accuracies, loss, gradient norm, learning rate, the moment."""

from collections.abc import Sequence
from typing import Any

from robust0.study.drawing import canvas, colour
from robust0.study.folder import Json

_ACCURACIES = (
    ("clean", "clean", "tab:green"),
    ("training_attack", "training attack", "tab:orange"),
    ("probe", "probe", "tab:red"),
)


def training(results: Sequence[Json]) -> dict[str, Any]:
    """A column of accuracies per run above, what all runs share below."""
    columns = max(len(results), 2)
    figure = canvas(4.2 * columns, 7)
    upper, lower = figure.subfigures(2, 1)
    for axes, result in zip(
        upper.subplots(1, len(results), squeeze=False)[0], results, strict=True
    ):
        _accuracies(axes, result)
    panels = (
        ("gradient_norm", "gradient norm", "log"),
        ("loss", "training loss", "linear"),
        ("learning_rate", "learning rate", "log"),
    )
    for axes, (key, name, scale) in zip(lower.subplots(1, 3), panels, strict=True):
        _together(axes, results, key)
        axes.set(xlabel="epoch", ylabel=name, yscale=scale)
        if key == "gradient_norm":
            axes.legend(fontsize="small")
    return {"training": figure}


def _accuracies(axes: Any, result: Json) -> None:  # noqa: ANN401 - matplotlib has no types
    epochs = result["epochs"]
    for key, name, tone in _ACCURACIES:
        points = [
            (epoch, 100 * value)
            for epoch, value in zip(epochs["epoch"], epochs[key], strict=True)
            if value is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", color=tone, label=name)
    if result["moment"] is not None:
        axes.axvline(
            result["moment"]["epoch"], color="black", linestyle="--",
            label="catastrophic overfitting",
        )  # fmt: skip
    axes.set(xlabel="epoch", ylabel="accuracy on reserved images (%)", ylim=(0, 100))
    axes.set_title(f"{result['model']}\n{result['title']}", fontsize=9)
    if epochs["epoch"]:
        axes.legend(fontsize="small")


def _together(axes: Any, results: Sequence[Json], key: str) -> None:  # noqa: ANN401
    for number, result in enumerate(results):
        steps = result["steps"]
        at = [step / result["per_epoch"] for step in steps["step"]]
        axes.plot(at, steps[key], color=colour(number), label=result["model"], linewidth=1.2)
        if result["moment"] is not None:
            axes.axvline(result["moment"]["epoch"], color=colour(number), linestyle="--")
