"""What all figures share: a canvas without a display, colours, PNG and SVG."""

from pathlib import Path
from typing import Any

from robust0.files import atomic

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def save_figure(figure: Any, stem: Path) -> list[Path]:  # noqa: ANN401 - matplotlib has no types
    """PNG and SVG, each whole or not at all."""
    paths = []
    for form, notes in (("png", {"Software": "robust0"}), ("svg", {"Date": None})):
        path = stem.with_name(f"{stem.name}.{form}")
        with atomic(path) as temporary:
            figure.savefig(temporary, format=form, dpi=130, metadata=notes)
        paths.append(path)
    return paths


def canvas(width: float, height: float) -> Any:  # noqa: ANN401
    """An empty figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def colour(number: int) -> str:
    """A colour that tells models apart, also for the colour-blind."""
    return _COLOURS[number % len(_COLOURS)]
