"""Overlap, interpolation and gradient distances as jobs."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from statistics import fmean

from torch import Tensor

from robust0.errors import RecipeError
from robust0.study.folder import Json, UnitStore
from robust0.study.gradients import gradient_gap
from robust0.study.interpolate import SHARES, along
from robust0.study.overlap import chance_distance, chance_location, chance_overlap, overlaps
from robust0.study.perturb import Perturber, StudyImages
from robust0.study.run import StudyJob, Tick, Unit
from robust0.study.subjects import StudyScope, StudySubject


def overlap_job(scope: StudyScope) -> StudyJob:
    """Where the first attack of every model and its second one put their changes."""

    def compute(_: UnitStore, tick: Tick, model: StudySubject) -> Json:
        one, two = model.attacks
        if one.threat is None or two.threat is None:
            raise RecipeError("an overlap needs two attacks", "name two that change the image")
        if one.threat.unit != two.threat.unit:
            raise RecipeError("the two attacks count in different units", "use one --unit")
        first = one(model.network, scope.data)
        tick(1, 2)
        second = two(model.network, scope.data)
        found = overlaps(one.threat, scope.data.images, first, second)
        if not len(found.rows):
            raise RecipeError(
                f"there is no image of {model.label} that both attacks changed",
                "use more images, or other attacks",
            )
        sites = one.threat.shape(scope.data.images)[1]
        sizes = found.first.float().mean().item(), found.second.float().mean().item()
        chance = {
            "distance": chance_distance(*sizes, sites),
            "location": chance_location(*sizes, sites),
            "overlap": chance_overlap(sizes[0], sites),
        }
        means = {name: getattr(found, name).double().mean().item() for name in chance}
        return {
            "model": model.label, **model.facts, "first": one.label, "second": two.label,
            "unit": one.threat.unit, "sites": sites, "images": len(found.rows),
            "changed": list(sizes), "mean": means, "chance": chance,
            "lift": means["overlap"] / chance["overlap"],
            "values": {name: _numbers(getattr(found, name)) for name in chance},
        }  # fmt: skip

    units = [
        Unit(f"{m}", model.label, partial(compute, model=model))
        for m, model in enumerate(scope.models)
    ]
    return StudyJob("overlap", _title(scope), scope.identity(), units, list)


def interpolate_job(scope: StudyScope, shares: Sequence[float] = SHARES) -> StudyJob:
    """Accuracy on the way to the first attack's perturbation, for every model."""

    def compute(_: UnitStore, __: Tick, model: StudySubject, attack: Perturber) -> Json:
        data = scope.data
        perturbed = attack(model.network, data)
        values = along(model.network, data.images, perturbed, data.labels, shares)
        return {
            "model": model.label, **model.facts, "attack": attack.label, "images": len(data),
            "shares": list(shares), "accuracy": values,
        }  # fmt: skip

    if not shares:
        raise RecipeError("no points to look at", "for example 0,0.2,0.4,0.6,0.8,1")
    units = [
        Unit(
            f"{m}-{a}",
            f"{model.label}, {attack.label}",
            partial(compute, model=model, attack=attack),
        )
        for m, model in enumerate(scope.models)
        for a, attack in enumerate(model.attacks)
    ]
    identity = scope.identity(shares=list(shares))
    return StudyJob("interpolate", _title(scope), identity, units, list)


def gradients_job(scope: StudyScope, *, batch: int = 128, per_image: bool = True) -> StudyJob:
    """How far apart the weight gradients of every model's two attacks are."""
    if batch < 1:
        raise RecipeError(f"a batch needs at least one image, got {batch}", "for example 128")
    starts = range(0, len(scope.data), batch)

    def unit(number: int, model: StudySubject, first: int) -> Unit:
        def compute(_: UnitStore, tick: Tick) -> Json:
            part = scope.data.part(first, first + batch)
            one, two = (attack(model.network, part) for attack in model.attacks)
            whole = asdict(gradient_gap(model.network, one, two, part.labels))
            images = _each(model, one, two, part, tick) if per_image else []
            return {"batch": whole, "images": images}

        return Unit(
            f"{number}-batch-{first:06}", f"{model.label}: images from {first + 1:,}", compute
        )

    units = [unit(m, model, first) for m, model in enumerate(scope.models) for first in starts]

    def fold(results: list[Json]) -> list[Json]:
        rows = []
        for number, model in enumerate(scope.models):
            mine = results[number * len(starts) : (number + 1) * len(starts)]
            images = [gap for result in mine for gap in result["images"]]
            one, two = model.attacks
            row = {
                "model": model.label, **model.facts, "first": one.label, "second": two.label,
                "batch_size": min(batch, len(scope.data)),
                "batch": _columns([result["batch"] for result in mine]),
                "image": _columns(images) if images else None,
            }  # fmt: skip
            rows.append(row)
        return rows

    identity = scope.identity(batch=batch, per_image=per_image)
    return StudyJob("gradients", _title(scope), identity, units, fold)


def _each(
    model: StudySubject, one: Tensor, two: Tensor, part: StudyImages, tick: Tick
) -> list[Json]:
    gaps = []
    for row in range(len(part)):
        tick(row, len(part))
        at = slice(row, row + 1)
        gaps.append(asdict(gradient_gap(model.network, one[at], two[at], part.labels[at])))
    return gaps


def _columns(gaps: list[Json]) -> Json:
    """Means, and all distances."""
    means = {name: fmean(gap[name] for gap in gaps) for name in gaps[0]}
    return {"mean": means, "distances": [gap["distance"] for gap in gaps]}


def _numbers(values: Tensor) -> list[float]:
    return [round(value, 6) for value in values.double().tolist()]


def _title(scope: StudyScope) -> str:
    return f"{', '.join(model.label for model in scope.models)} on {len(scope.data):,} images"
