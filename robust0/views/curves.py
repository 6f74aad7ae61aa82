"""A training run's curves as a picture, from its metrics alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def draw_curves(records: Sequence[dict[str, Any]], target: Path, title: str) -> None:
    """Accuracies on reserved images over epochs, and the loss over steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    epochs = [record for record in records if record["event"] == "epoch"]
    for key, name, colour in (
        ("clean", "clean", "tab:green"),
        ("training_attack", "training attack", "tab:orange"),
        ("probe", "probe", "tab:red"),
    ):
        points = [
            (record["epoch"], 100 * record[key]) for record in epochs if record[key] is not None
        ]
        if points:
            left.plot(*zip(*points, strict=True), marker="o", color=colour, label=name)
    left.set(xlabel="epoch", ylabel="accuracy on reserved images (%)", ylim=(0, 100))
    if epochs:
        left.legend(title=f"probe: {epochs[-1]['probe_name']}", fontsize="small")
    steps = [record for record in records if record["event"] == "step"]
    right.plot([r["step"] for r in steps], [r["loss"] for r in steps], color="tab:blue")
    right.set(xlabel="step", ylabel="training loss")
    figure.suptitle(title)
    figure.savefig(target, dpi=120, metadata={"Software": "robust0"})
