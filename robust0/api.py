"""Audits and certificates for Python: a module and images in, a report out; no files."""

from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any, Literal

import torch
from torch import nn

from robust0.auditing.given import given_images
from robust0.auditing.run import run
from robust0.certify_events import CertifyEvent, CertifyFinished
from robust0.certifying.classifiers import Sampling
from robust0.certifying.run import certify_run
from robust0.commands.build_audit import AuditRequest, build_audit
from robust0.commands.build_certify import CertifyRequest, build_certify
from robust0.distributed import World
from robust0.errors import AttackContractError, ModelError, RecipeError
from robust0.events import AuditEvent, AuditFinished
from robust0.gate.certified import refuse_broken
from robust0.proofs import CertificateReport
from robust0.recipes.load import read_audit, settings_hash
from robust0.recipes.schema import AuditSpec
from robust0.records import Report, Unit
from robust0.runs.subject import given_subject


def audit(
    module: nn.Module,
    images: Any,  # noqa: ANN401 - a tensor, an array or nested lists
    labels: Any,  # noqa: ANN401
    eps: int | Sequence[int] = 20,
    effort: Literal["smoke", "quick", "standard", "paper"] = "quick",
    *,
    attacks: str | Sequence[str] = "all",
    unit: Unit = "pixel",
    mode: Literal["battery", "cascade"] = "battery",
    thorough: bool = False,
    seed: int = 0,
    batch_size: int | None = None,
    precision: Literal["auto", "fp32", "bf16"] = "auto",
    compile: bool = False,  # noqa: A002 - the name of the command line's option
    progress: Callable[[AuditEvent], None] | None = None,
) -> Report:
    """Attack a module and report an upper bound on its robust accuracy.

    The module is used in eval mode on the device it is on and is left as it was. It returns logits
    for images in [0, 1]; normalisation is its own affair.

    Args:
        module: the network.
        images: (N, C, H, W) floats in [0, 1].
        labels: (N,) class numbers of any integer type.
        eps: how many sites may change, or several such budgets.
        effort: how long attacks search; at ``quick`` they are far from converged.
        attacks: names or groups (``saa``, ``worst-case``, ``all``), or several.
        unit: whether a site is a pixel or a single value of one.
        mode: every attack on every image, or only on survivors.
        thorough: try smaller budgets on all images, not only on those that fell.
        seed: of the attacks' draws.
        batch_size: images per model call; part of what makes a result repeatable.
        precision: of gradients and of layers over large maps in a search; verdicts are always
            float32. ``auto`` is bf16 where the device multiplies it natively, else fp32.
        compile: search with torch.compile.
        progress: told every event.
    """
    device = _device(module)
    data = given_images(images, labels, device)
    budgets = _budgets(eps)
    spec = _audit_spec(mode, effort, attacks, seed, len(data))
    request = AuditRequest(
        subject=given_subject(module, data, device),
        audit=spec,
        unit=unit,
        budgets=budgets,
        recipe=settings_hash({"unit": unit, "audit": spec.model_dump(mode="json")}),
        thorough=thorough,
        rows=batch_size,
        precision=precision,
        compile=compile,
    )
    report: Report | None = None
    for event in run(build_audit(request), World(), resume=False):
        if progress is not None:
            progress(event)
        if isinstance(event, AuditFinished):
            report = event.report
    if report is None:
        raise KeyboardInterrupt
    violations = sum(row.violations for b in report.results.budgets for row in b.attacks)
    if violations:
        raise AttackContractError(
            f"attacks broke their own promises {violations} times: no number may be used",
            "this is a bug of robust0: please report it",
        )
    return report


def certify(
    module: nn.Module,
    images: Any,  # noqa: ANN401 - a tensor, an array or nested lists
    labels: Any,  # noqa: ANN401
    eps: int | Sequence[int] = (1, 2, 5, 10, 20),
    *,
    samples: int = 10_000,
    choose: int = 1_000,
    alpha: float = 0.05,
    condition: Literal["half", "gap"] = "half",
    tried: int = 0,
    effort: Literal["smoke", "quick", "standard", "paper"] = "smoke",
    seed: int = 0,
    progress: Callable[[CertifyEvent | AuditEvent], None] | None = None,
) -> CertificateReport:
    """Prove how many changed pixels the answers of a classifier withstand.

    The module votes over views, looks under masks or is smoothed by ablation
    (:mod:`robust0.models.voting`); nothing can be proved about a plain network.

    Args:
        module: the classifier, for example from :func:`robust0.load`.
        images: (N, C, H, W) floats in [0, 1].
        labels: (N,) class numbers of any integer type.
        eps: how many changed pixels to report about.
        samples: ablation: the samples that bound a class.
        choose: ablation: the samples that choose it.
        alpha: ablation: the chance of a false certificate, per image.
        condition: ablation: the answer against half, or against the second.
        tried: of so many images per classifier, attack the certificate within its own radius.
        effort: how long these attacks search.
        seed: of their draws.
        progress: told every event.
    """
    device = _device(module)
    request = CertifyRequest(
        subject=given_subject(module, given_images(images, labels, device), device),
        pixels=_budgets(eps),
        sampling=Sampling(choose=choose, bound=samples, alpha=alpha, condition=condition),
        tried=tried,
        effort=effort,
        seed=seed,
    )
    report: CertificateReport | None = None
    for event in certify_run(build_certify(request), World(), resume=False):
        if progress is not None:
            progress(event)
        if isinstance(event, CertifyFinished):
            report = event.report
    if report is None:
        raise KeyboardInterrupt
    refuse_broken(report.results)
    return report


def _device(module: nn.Module) -> torch.device:
    """Where a module is; refuses what is none."""
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"expected a torch.nn.Module, got a {type(module).__name__}",
            "wrap a function in a module whose forward calls it",
        )
    weight = next(module.parameters(), None)
    return weight.device if weight is not None else torch.device("cpu")


def _budgets(eps: int | Sequence[int]) -> tuple[int, ...]:
    try:
        given = [index(value) for value in (eps if isinstance(eps, Iterable) else [eps])]
    except TypeError:
        given = []
    if not given or min(given) < 1 or isinstance(eps, bool):
        raise RecipeError(
            f"eps must be whole numbers of at least 1, got {eps!r}", "for example eps=20"
        )
    return tuple(sorted(set(given), reverse=True))


def _audit_spec(
    mode: str, effort: str, attacks: str | Sequence[str], seed: int, images: int
) -> AuditSpec:
    words = attacks.split(",") if isinstance(attacks, str) else list(attacks)
    if mode == "cascade" and words == ["all"]:
        words = ["worst-case"]
    named = [word.strip() for word in words]
    values = {"mode": mode, "effort": effort, "attacks": named, "seed": seed, "images": images}
    return read_audit(values)
