"""Progress of what Python started: a bar in notebooks, the live view on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from robust0.events import AuditProgress, AuditStarted, Ticked, TrainStarted
from robust0.views.audit import audit_view
from robust0.views.harden import train_view
from robust0.views.output import err
from robust0.wording import percent

Show = Callable[[Any], None]
Progress = bool | Callable[[Any], None] | None


@contextmanager
def python_view(progress: Progress, *, training: bool = False) -> Iterator[Show]:
    """Who is told the events: the caller's own function, a view that fits, or nobody."""
    if callable(progress):
        yield progress
    elif progress is False or (progress is None and not _watched()):
        yield lambda _: None
    elif in_notebook():
        with _bar() as show:
            yield show
    else:
        with train_view() if training else audit_view() as view:
            yield view.show


def in_notebook() -> bool:
    """Whether a notebook's kernel runs us."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _watched() -> bool:
    return in_notebook() or err().is_terminal


@contextmanager
def _bar() -> Iterator[Show]:
    from tqdm.auto import tqdm

    bar = tqdm(total=1000, bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}")
    steps = 1

    def show(event: object) -> None:
        nonlocal steps
        match event:
            case AuditStarted() | TrainStarted():
                bar.set_description(event.title)
                if isinstance(event, TrainStarted):
                    steps = max(1, event.epochs * event.steps_per_epoch)
            case AuditProgress():
                bar.set_description(f"worst case so far ≤ {percent(event.survivors)}")
                bar.update(max(0, round(1000 * event.share) - bar.n))
            case Ticked():
                bar.update(max(0, round(1000 * event.step / steps) - bar.n))
            case _:
                pass

    with bar:
        yield show
