"""The audit for Python: a module and images in, a report out."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from robust0.api.inputs import answering, device_of, given_budgets, open_given
from robust0.api.refusals import in_python, warn_of
from robust0.api.result import AuditReport
from robust0.api.scratch import ScratchFolder
from robust0.auditing.facts import RunFile, write_run
from robust0.auditing.job import AuditJob
from robust0.auditing.run import run_audit
from robust0.auditing.rundata import RECIPE, read_run
from robust0.commands.build_audit import AuditRequest, build_audit
from robust0.distributed import World
from robust0.errors import AttackContractError
from robust0.events import AuditEvent, AuditFinished
from robust0.files import write_text
from robust0.recipes.load import read_audit, settings_hash
from robust0.recipes.schema import AuditSpec
from robust0.recipes.yaml_source import dump
from robust0.records import Unit
from robust0.runs.subject import given_subject
from robust0.views.python import Progress, python_view

Effort = Literal["smoke", "quick", "standard", "paper", "converged"]


def audit(
    module: nn.Module,
    images: Any,  # noqa: ANN401 - a tensor, an array, a DataLoader or a dataset
    labels: Any = None,  # noqa: ANN401
    eps: int | Sequence[int] = 20,
    effort: Effort = "quick",
    *,
    attacks: str | Sequence[str] = "all",
    unit: Unit = "pixel",
    mode: Literal["battery", "cascade"] = "battery",
    thorough: bool = False,
    seed: int = 0,
    limit: int | None = None,
    batch_size: int | None = None,
    precision: Literal["auto", "fp32", "bf16"] = "auto",
    compile: bool = False,  # noqa: A002 - the name of the command line's option
    progress: bool | Callable[[AuditEvent], None] | None = None,
) -> AuditReport:
    """Attack a module and report an upper bound on its robust accuracy.

    The module is used in eval mode on the device it is on and is left as it was. It returns logits
    for images in [0, 1]; normalisation is its own affair. Where it returns more than a tensor, what
    is plainly the logits is taken, with a warning. Reasons to doubt the numbers are raised as
    :class:`robust0.EvaluationWarning`.

    Args:
        module: the network.
        images: (N, C, H, W) or (N, H, W), floats in [0, 1] or uint8; or, with the labels in it, a
            DataLoader, a dataset or a pair.
        labels: (N,) class numbers of any integer type.
        eps: how many pixels may change, or several such budgets.
        effort: how long attacks search; at ``quick`` they are far from converged.
        attacks: names or groups (``saa``, ``worst-case``, ``all``), or several.
        unit: what eps counts: ``pixel``, ``feature`` (a single value of one), ``row``, ``column``
            or ``patch:4`` (4x4 pixels).
        mode: every attack on every image, or only on survivors.
        thorough: try smaller budgets on all images, not only on those that fell.
        seed: of the attacks' draws.
        limit: audit only the first images, this many.
        batch_size: images per model call; part of what makes a result repeatable.
        precision: of gradients and of layers over large maps in a search; verdicts are always
            float32. ``auto`` is bf16 where the device multiplies it natively, else fp32.
        compile: search with torch.compile.
        progress: True shows it, False does not, None where somebody can watch; or told every event.
    """
    with in_python():
        device = device_of(module)
        data, notes = open_given(images, labels, device, limit)
        network, taken = answering(module, data)
        spec = _audit_spec(mode, effort, attacks, seed, len(data))
        subject = given_subject(network, data, device)
        name = type(module).__name__
        request = AuditRequest(
            subject=replace(subject, model=name, arch=name),
            audit=spec,
            unit=unit,
            budgets=given_budgets(eps),
            recipe=settings_hash({"unit": unit, "audit": spec.model_dump(mode="json")}),
            thorough=thorough,
            batch_size=batch_size,
            precision=precision,
            compile=compile,
        )
        folder = ScratchFolder()
        job = replace(build_audit(request), folder=folder.path, write_reports=lambda _: None)
        _remember(job, spec)
        _drive(job, progress)
        found = read_run(folder.path)
        report = AuditReport(found, data, folder)
        _refuse_violations(report)
    warn_of(report.results.flags, [*notes, *taken])
    return report


def _drive(job: AuditJob, progress: Progress) -> None:
    finished = False
    with python_view(progress) as show:
        for event in run_audit(job, World(), resume=False):
            show(event)
            finished = isinstance(event, AuditFinished) and event.report is not None
    if not finished:
        raise KeyboardInterrupt


def _remember(job: AuditJob, spec: AuditSpec) -> None:
    """What reading the run back needs."""
    folder = job.folder or Path()
    write_text(folder / RECIPE, dump({"audit": spec.model_dump(mode="json")}))
    started = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    write_run(
        folder,
        RunFile(
            chained=True,
            identity=job.identity, options={}, image_shape=job.data.image_shape, facts=job.facts,
            started=started, command=(), processes=1,
        ),
    )  # fmt: skip


def _refuse_violations(report: AuditReport) -> None:
    violations = sum(row.violations for b in report.results.budgets for row in b.attacks)
    if violations:
        raise AttackContractError(
            f"attacks broke their own promises {violations} times: no number may be used",
            "this is a bug in robust0: please report it",
        )


def _audit_spec(
    mode: str, effort: str, attacks: str | Sequence[str], seed: int, images: int
) -> AuditSpec:
    mode = "cascade" if effort == "converged" else mode
    words = attacks.split(",") if isinstance(attacks, str) else list(attacks)
    if mode == "cascade" and words == ["all"]:
        words = ["worst-case"]
    named = [word.strip() for word in words]
    values = {"mode": mode, "effort": effort, "attacks": named, "seed": seed, "images": images}
    return read_audit(values)
