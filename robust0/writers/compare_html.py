"""compare.html: several audits or certificates on one page that needs nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from robust0 import __version__, wording
from robust0.auditing.known import hits_within
from robust0.comparing.sides import AuditSide, Side
from robust0.comparison import ComparisonResults, SeparatingImage, signed
from robust0.records import CLEAN, Verdict, configured
from robust0.units import counted, plural
from robust0.writers.compare_picture import comparison_svg, difference_svg
from robust0.writers.page import page
from robust0.writers.picture import changed_picture, data_uri

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST = 60  # images with pictures, of each group of survivors
_MOST_BYTES = 3_000_000  # of all pictures: large photographs make a page heavy


@dataclass(frozen=True, slots=True)
class Divided:
    """An image that only some survive: its pictures where a side has them, and its words."""

    image: int
    survivors: str
    name: str
    words: str
    pictures: tuple[tuple[str, str], ...]  # what each shows, and its data URI


def render_comparison(results: ComparisonResults, sides: Sequence[Side]) -> str:
    """The page of a comparison."""
    reach = max(
        [1.0, *(abs(v) for row in results.rows for p in row.pairs for v in (p.low, p.high))]
    )
    first = results.sides[0].letter
    names = [wording.tidy(side.source, 80) for side in results.sides]
    shown = _divided(results, sides)
    return page(
        "compare.html.j2",
        title=f"robust0 compare: {' and '.join(names)}",
        names=names,
        results=results,
        main=results.main,
        main_title=results.main.title(results.unit),
        first=first,
        titles=[row.title(results.unit) for row in results.rows],
        signed=signed,
        forest=lambda pair: difference_svg(pair, reach),
        verdicts=list(zip(results.verdicts, results.main.pairs, strict=True)),
        words=_words(results),
        units=plural(results.unit),
        curves=comparison_svg(results),
        curve_rows=_curve_rows(results),
        groups=_groups(results),
        shown=shown,
        hidden=len(results.separating) - len(shown),
        settings=_settings(results),
        version=__version__,
    )


def _words(results: ComparisonResults) -> dict[str, str]:
    """What differs between audits and certificates."""
    if results.kind == "certificate":
        return {
            "curves": "Certified accuracy over pixels",
            "right": "right and certified",
            "only": "Images certified in only one",
        }
    return {
        "curves": "Accuracy over budgets",
        "right": "still right",
        "only": "Images that only one survives",
    }


def _groups(results: ComparisonResults) -> list[tuple[str, list[SeparatingImage]]]:
    """The images that only some survive, by who does."""
    letters = sorted({image.survivors for image in results.separating})
    return [(own, [i for i in results.separating if i.survivors == own]) for own in letters]


def _curve_rows(results: ComparisonResults) -> list[tuple[str, list[str]]]:
    """Every place of a curve that has a step, with what each curve has there."""
    places = sorted({point.budget for curve in results.curves for point in curve.points})
    rows = []
    for place in places:
        there = [[p.robust for p in curve.points if p.budget <= place][-1]
                 for curve in results.curves]  # fmt: skip
        rows.append((counted(place, results.unit), [wording.percent(one) for one in there]))
    return rows


def _settings(results: ComparisonResults) -> list[tuple[str, list[str], bool]]:
    """A row per setting, with one value per subject, and whether they are all the same."""
    known: list[dict[str, str]] = [
        {
            "model": side.model,
            "architecture": side.arch,
            "trained with": side.method or "unknown",
            "sha256 of the checkpoint": side.sha256 or "not a file",
            **side.settings,
        }
        for side in results.sides
    ]
    keys = dict.fromkeys(key for own in known for key in own)
    rows = [(key, [own.get(key, "-") for own in known]) for key in keys]
    return [(key, values, len(set(values)) == 1) for key, values in rows]


def _divided(results: ComparisonResults, sides: Sequence[Side]) -> list[Divided]:
    """Images with pictures: those of every group of survivors, as many as a page can carry."""
    shown, size = list[Divided](), 0
    for _, group in _groups(results):
        for image in group[:_MOST]:
            made = _picture(results, sides, image)
            if made is None:
                continue
            size += sum(len(uri) for _, uri in made.pictures)
            if shown and size > _MOST_BYTES:
                return shown
            shown.append(made)
    return shown


def _picture(
    results: ComparisonResults, sides: Sequence[Side], divided: SeparatingImage
) -> Divided | None:
    """The clean image, and the hit that broke one of those that do not survive it."""
    image = divided.image
    kept = next((s.clean for s in sides if s.clean and image in s.clean.rows()), None)
    if kept is None:
        return None
    before: NDArray[np.float32] = kept.images[kept.rows()[image]].astype(np.float32)
    before /= np.float32(255)
    pictures, proved = [("clean", data_uri(before))], results.kind == "certificate"
    words = [
        f"{'is certified' if proved else 'survives'} only in {' and '.join(divided.survivors)}"
    ]
    for side, known in zip(sides, results.sides, strict=True):
        if known.letter in divided.survivors or not isinstance(side, AuditSide) or not side.run:
            continue
        if side.run.verdicts[0, CLEAN, image].fooled:
            words.append(f"{known.letter} errs on the clean image")
            continue
        hit = _hit(side, results, image)
        key = None if hit is None else (hit.budget, hit.attack, hit.image)
        if hit is None or key not in side.run.attempts.found:
            continue
        prediction = wording.class_name(side.classes, hit.prediction)
        needed = counted(hit.needed, results.unit)
        attack = wording.tidy(configured(hit.attack))
        words.append(f"{known.letter} falls to {attack}: {prediction}, {needed}")
        if len(pictures) == 1:
            after = side.run.attempts.paint((hit.budget, hit.attack, hit.image), before)
            differs = (before != after).any(axis=0)
            pictures.append((f"breaks {known.letter}", data_uri(after)))
            pictures.append(("changed", data_uri(changed_picture(before, after, differs))))
    own = tuple(pictures)
    return Divided(image, divided.survivors, divided.title, "; ".join(words), own)


def _hit(side: AuditSide, results: ComparisonResults, image: int) -> Verdict | None:
    """The hit on an image that needs least, within the headline's budget."""
    if side.run is None:
        return None
    own = [v for v in side.run.verdicts.values() if v.image == image]
    hits = [known[image] for known in hits_within(own, results.main.budget).values()]
    return min(hits, key=lambda verdict: (verdict.needed, verdict.margin), default=None)
