"""The studies for Python: modules and images in, a plain result out; no files are written.

Every function takes one module or several by name and returns what the command line writes as JSON:
``{"part", "about", "results"}``, one result per module and attack. Attacks are the words of
``robust0 study --attack``: ``one-step``, ``multi-step,steps=20``, ``clean``, ``sparse-rs`` and so
on; ``training`` is not among them, because a module does not say how it was trained.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from robust0.auditing.given import given_images
from robust0.commands.study_attacks import AttackChoice, perturber
from robust0.commands.study_runs import recorded_runs
from robust0.errors import ModelError
from robust0.records import Unit
from robust0.runs.subject import ModelReference, tensors_digest
from robust0.study.attack_jobs import gradients_job, interpolate_job, overlap_job
from robust0.study.curvature_jobs import landscape_job, spectrum_job
from robust0.study.interpolate import SHARES
from robust0.study.perturb import StudyImages
from robust0.study.run import run_study
from robust0.study.subjects import StudyScope, StudySubject
from robust0.study.training import training_job
from robust0.study_events import StudyEvent

Modules = nn.Module | Mapping[str, nn.Module]
Progress = Callable[[StudyEvent], None]
Result = dict[str, Any]


def spectrum(
    modules: Modules,
    images: Any,  # noqa: ANN401 - a tensor or an array
    labels: Any,  # noqa: ANN401
    attack: str | Sequence[str] = "one-step",
    eps: int = 20,
    *,
    unit: Unit = "pixel",
    top: int = 10,
    which: Literal["largest", "magnitude"] = "largest",
    products: int = 60,
    density: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Top eigenvalues of the Hessian of the loss in the weights; see ``robust0 study spectrum``."""
    words = (attack,) if isinstance(attack, str) else tuple(attack)
    scope = _scope(modules, images, labels, words, eps, unit, seed)
    job = spectrum_job(scope, count=top, which=which, products=products, density_steps=density)
    return run_study(job, progress=progress)


def landscape(
    modules: Modules,
    images: Any,  # noqa: ANN401
    labels: Any,  # noqa: ANN401
    attack: str = "one-step",
    eps: int = 20,
    *,
    unit: Unit = "pixel",
    grid: int = 11,
    span: float = 0.5,
    directions: Literal["eigenvectors", "random"] = "eigenvectors",
    frozen: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """The loss on a grid around the weights, which are put back whatever happens."""
    scope = _scope(modules, images, labels, (attack,), eps, unit, seed)
    job = landscape_job(scope, points=grid, span=span, directions=directions, frozen=frozen)
    return run_study(job, progress=progress)


def overlap(
    modules: Modules,
    images: Any,  # noqa: ANN401
    labels: Any,  # noqa: ANN401
    attack: str = "one-step",
    against: str = "guided-swap",
    eps: int = 20,
    *,
    unit: Unit = "pixel",
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Where two attacks change an image, beside the chance level; ``one-step,eps=120`` differs."""
    scope = _scope(modules, images, labels, (attack, against), eps, unit, seed)
    return run_study(overlap_job(scope), progress=progress)


def interpolate(
    modules: Modules,
    images: Any,  # noqa: ANN401
    labels: Any,  # noqa: ANN401
    attack: str = "one-step",
    eps: int = 20,
    *,
    unit: Unit = "pixel",
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Accuracy along ``images + share * perturbation``."""
    scope = _scope(modules, images, labels, (attack,), eps, unit, seed)
    return run_study(interpolate_job(scope, shares), progress=progress)


def gradients(
    modules: Modules,
    images: Any,  # noqa: ANN401
    labels: Any,  # noqa: ANN401
    attack: str = "one-step",
    against: str = "multi-step",
    eps: int = 20,
    *,
    unit: Unit = "pixel",
    batch: int = 128,
    per_image: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Distance between the weight gradients under two attacks, per batch and per image."""
    scope = _scope(modules, images, labels, (attack, against), eps, unit, seed)
    return run_study(gradients_job(scope, batch=batch, per_image=per_image), progress=progress)


def training(*runs: str | Path) -> Result:
    """Curves of finished harden runs and the moment of catastrophic overfitting of each."""
    return run_study(training_job(recorded_runs([Path(run) for run in runs])))


def _scope(
    modules: Modules, images: Any, labels: Any, words: tuple[str, ...], eps: int, unit: Unit,  # noqa: ANN401
    seed: int,
) -> StudyScope:  # fmt: skip
    named = {type(modules).__name__: modules} if isinstance(modules, nn.Module) else dict(modules)
    if not named or not all(isinstance(module, nn.Module) for module in named.values()):
        raise ModelError("expected torch.nn.Modules", "give one, or several by name")
    weight = next((w for module in named.values() for w in module.parameters()), None)
    device = torch.device("cpu") if weight is None else weight.device
    data = given_images(images, labels, device)
    choice = AttackChoice(eps, unit, seed=seed)
    models = [
        StudySubject(
            name, module, tensors_digest(module),
            tuple(perturber(word, ModelReference(name), choice) for word in words),
        )
        for name, module in named.items()
    ]  # fmt: skip
    return StudyScope(models, StudyImages.of(data), data.content_fingerprint, seed)
