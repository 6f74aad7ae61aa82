"""A training run's curves as a picture, from its metrics alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW = 30  # reports, up to which each is marked


def draw_curves(records: Sequence[dict[str, Any]], target: Path, title: str) -> None:
    """Write the picture."""
    figure = curves(records, title)
    figure.savefig(target, dpi=120, metadata={"Software": "robust0"})


def curves(records: Sequence[dict[str, Any]], title: str) -> "Figure":
    """Accuracies on reserved images over epochs, and the loss of every step.

    One epoch, even one step, is enough for a picture: points are marked, ticks are whole numbers.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

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
            left.plot(
                *zip(*points, strict=True), marker="o", color=colour, label=name, clip_on=False
            )
    left.set(xlabel="epoch", ylabel="accuracy on reserved images (%)", ylim=(0, 100))
    if epochs:
        left.set_xlim(epochs[0]["epoch"] - 0.5, epochs[-1]["epoch"] + 0.5)
        left.legend(title=f"probe: {epochs[-1]['probe_name']}", fontsize="small")
    steps = [record for record in records if record["event"] == "step"]
    right.plot(*_every_step(steps), ".", color="tab:blue", alpha=0.3, label="step")
    right.plot(
        [r["step"] for r in steps],
        [r["loss"] for r in steps],
        color="tab:blue",
        marker="o" if len(steps) < FEW else None,
        label="mean since the last report",
    )
    right.set(xlabel="step", ylabel="training loss")
    if steps:
        right.legend(fontsize="small")
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    return figure


def _every_step(records: Sequence[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """The place and the loss of every update between two reports."""
    places, losses, before = [], [], 0
    for record in records:
        own = record.get("losses", ())
        width = (record["step"] - before) / max(len(own), 1)
        places += [before + width * (number + 1) for number in range(len(own))]
        losses += own
        before = record["step"]
    return places, losses
