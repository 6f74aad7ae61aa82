"""The spectrum and the landscape as jobs: units, what they depend on, and their cost."""

from functools import partial
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from robust0.errors import RecipeError
from robust0.study.folder import Json, UnitStore
from robust0.study.hessian import Hessian
from robust0.study.landscape import Plane, grid_row, random_directions
from robust0.study.perturb import Perturber, StudyImages
from robust0.study.run import StudyJob, Tick, Unit
from robust0.study.spectrum import PRODUCTS, Which, spectral_density, top_eigenpairs
from robust0.study.subjects import StudyScope, StudySubject, spoken_duration

PRODUCT_COST = 7  # a Hessian product in forwards, as measured on a PreActResNet
Directions = Literal["eigenvectors", "random"]


def spectrum_job(
    scope: StudyScope,
    *,
    count: int = 10,
    which: Which = "largest",
    products: int = PRODUCTS,
    density_steps: int = 0,
    density_probes: int = 2,
) -> StudyJob:
    """Top eigenvalues of the loss of every model under each of its attacks; perhaps the density."""
    if count < 1:
        raise RecipeError(f"{count} eigenvalues were asked for", "ask for at least 1")

    def compute(_: UnitStore, tick: Tick, model: StudySubject, attack: Perturber) -> Json:
        hessian = Hessian(model.network, attack(model.network, scope.data), scope.data.labels)
        found = top_eigenpairs(
            hessian, count, which=which, seed=scope.seed, products=products, tick=tick
        )
        result = {
            "model": model.label, "attack": attack.label, **model.facts, "loss": hessian.loss(),
            "values": list(found.values), "asked": found.asked, "products": found.products,
        }  # fmt: skip
        if density_steps:
            density = spectral_density(
                hessian, steps=density_steps, probes=density_probes, seed=scope.seed, tick=tick
            )
            result["density"] = {
                "nodes": list(density.nodes),
                "weights": list(density.weights),
                "products": density.products,
            }
        return result

    units = [
        Unit(
            f"{m}-{a}",
            f"{model.label}, {attack.label}",
            partial(compute, model=model, attack=attack),
        )
        for m, model in enumerate(scope.models)
        for a, attack in enumerate(model.attacks)
    ]
    identity = scope.identity(
        count=count, which=which, products=products,
        density=[density_steps, density_probes] if density_steps else None,
    )  # fmt: skip
    most = products + density_steps * density_probes
    seconds = sum(scope.forward_seconds(m.network) * len(m.attacks) for m in scope.models)
    cost = spoken_duration(seconds * most * PRODUCT_COST * len(scope.data))
    note = f"at most {most} Hessian products per model and attack, {cost} in all beside the attacks"
    return StudyJob("spectrum", _title(scope), identity, units, list, (note,))


def landscape_job(
    scope: StudyScope,
    *,
    points: int = 11,
    span: float = 0.5,
    directions: Directions = "eigenvectors",
    frozen: bool = False,
) -> StudyJob:
    """Losses on a grid around the weights of every model, under its first attack."""
    Plane(torch.zeros(2, 1), span, points)  # refuses a grid of nothing before anything runs
    units: list[Unit] = []
    for number, model in enumerate(scope.models):
        units.append(_directions_unit(scope, number, model, directions))
        units += [
            _row_unit(scope, number, model, row, points, span, frozen=frozen)
            for row in range(points)
        ]
    size = points + 1

    def fold(results: list[Json]) -> list[Json]:
        groups = [results[first : first + size] for first in range(0, len(results), size)]
        return [_surface(head, rows, points, span) for head, *rows in groups]

    identity = scope.identity(points=points, span=span, directions=directions, frozen=frozen)
    notes = (_landscape_cost(scope, points, directions, frozen=frozen),)
    return StudyJob("landscape", _title(scope), identity, units, fold, notes)


def _directions_unit(
    scope: StudyScope, number: int, model: StudySubject, directions: Directions
) -> Unit:
    attack = model.attacks[0]

    def compute(store: UnitStore, tick: Tick) -> Json:
        perturbed = attack(model.network, scope.data)
        store.put_tensor(f"{number}-perturbed", perturbed)
        values: tuple[float, ...] = ()
        if directions == "random":
            vectors = random_directions(model.network, scope.seed)
        else:
            hessian = Hessian(model.network, perturbed, scope.data.labels)
            found = top_eigenpairs(hessian, 2, seed=scope.seed, tick=tick)
            values, vectors = found.values, found.vectors
            if len(values) < 2:
                raise RecipeError(
                    f"the top two eigenvectors of {model.label} were not found in "
                    f"{found.products} Hessian products",
                    "study it along --directions random",
                )
        store.put_tensor(f"{number}-directions", vectors.float())
        return {
            "model": model.label, "attack": attack.label, **model.facts, "directions": directions,
            "eigenvalues": list(values),
        }  # fmt: skip

    return Unit(f"{number}-directions", f"{model.label}: directions", compute)


def _row_unit(
    scope: StudyScope, number: int, model: StudySubject, row: int, points: int, span: float, *,
    frozen: bool,
) -> Unit:  # fmt: skip
    def compute(store: UnitStore, tick: Tick) -> Json:
        tick(row, points)
        plane = Plane(store.tensor(f"{number}-directions"), span, points)
        kept = store.tensor(f"{number}-perturbed").to(scope.data.images.device) if frozen else None

        def perturb(network: torch.nn.Module, data: StudyImages) -> Tensor:
            return model.attacks[0](network, data) if kept is None else kept

        return {"losses": grid_row(model.network, scope.data, perturb, plane, row)}

    return Unit(f"{number}-row-{row:03}", f"{model.label}: row {row + 1} of {points}", compute)


def _surface(head: Json, rows: list[Json], points: int, span: float) -> Json:
    losses = [row["losses"] for row in rows]
    steps = Plane(torch.zeros(2, 1), span, points).steps
    middle, gap = losses[points // 2][points // 2], steps[1] - steps[0]
    across = [abs(b - a) / gap for row in losses for a, b in pairwise(row)]
    along = [
        abs(b - a) / gap
        for above, below in pairwise(losses)
        for a, b in zip(above, below, strict=True)
    ]
    return {
        **head, "steps": steps, "losses": losses, "middle": middle,
        "lowest": min(map(min, losses)), "highest": max(map(max, losses)),
        "steepest": max(across + along),
    }  # fmt: skip


def _landscape_cost(scope: StudyScope, points: int, directions: Directions, *, frozen: bool) -> str:
    seconds, passes = 0.0, 0
    images = len(scope.data)
    for model in scope.models:
        asked = 0 if frozen else model.attacks[0].passes(scope.data, 2)
        mine = images * (points**2 * (1 + asked))
        mine += images * 25 * PRODUCT_COST if directions == "eigenvectors" else 0
        seconds += mine * scope.forward_seconds(model.network)
        passes += mine
    return (
        f"{len(scope.models)} x {points}x{points} points on {images:,} images, the attack "
        f"{'frozen' if frozen else 'anew at each'}: at most {passes:,} passes, "
        f"{spoken_duration(seconds)}"
    )


def _title(scope: StudyScope) -> str:
    names = ", ".join(model.label for model in scope.models)
    return f"{names} on {len(scope.data):,} images"
