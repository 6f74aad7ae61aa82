"""From the options of ``robust0 study`` to its models, images and attacks, and to its folder."""

import datetime
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from robust0.auditing.rundata import RunData, read_run
from robust0.commands.audit_recipe import AuditOptions, data_name, resolve_audit
from robust0.commands.study_attacks import AttackChoice, perturber
from robust0.commands.study_audits import audit_row, check_audit_of, strongest
from robust0.data.choice import choose
from robust0.data.imageset import ImageSet
from robust0.errors import DataError, ModelError, RecipeError, RunError
from robust0.events import Transfer
from robust0.files import at_home
from robust0.records import Unit
from robust0.runs.folder import owned
from robust0.runs.images import open_audited, open_images
from robust0.runs.subject import ModelReference, find_model, open_subject
from robust0.study.perturb import Perturber, StudyImages
from robust0.study.subjects import StudyScope, StudySubject

Progress = Callable[[Transfer], None]
Split = Literal["train", "test"]
_LAST, _BEST = "model.safetensors", "best.safetensors"


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """What the command line said; None means "as the model has it"."""

    models: tuple[str, ...]
    attacks: tuple[str, ...]
    images: int
    split: Split
    factory: str | None = None
    data: str | None = None
    data_dir: Path | None = None
    eps: int | None = None
    unit: Unit | None = None
    effort: str = "quick"
    seed: int = 0
    audit: Path | None = None  # a run of robust0 audit
    against_audit: bool = False  # the audit's strongest attack is the second one
    evaluation: bool = False  # attacks of training get the budget of the evaluation
    checkpoints: bool = False  # a run directory means all its checkpoints


def open_scope(options: StudyOptions, device: torch.device, progress: Progress) -> StudyScope:
    """The networks, images and attacks of a study; refuses what does not fit together."""
    if not options.models and options.factory is None:
        raise ModelError("no model was named", "give a checkpoint, a run directory or a zoo id")
    names: list[str | None] = list(_expanded(options)) or [None]
    references = [find_model(name, options.factory, progress) for name in names]
    run = None if options.audit is None else read_run(options.audit)
    data = _images(options, references[0], run, progress)
    labels = _labels([reference.shown for reference in references])
    models = [
        _studied(options, reference, label, data, run, device)
        for reference, label in zip(references, labels, strict=True)
    ]
    on_device = data.to(device)
    return StudyScope(models, StudyImages.of(on_device), data.content_fingerprint, options.seed)


def _expanded(options: StudyOptions) -> Iterator[str]:
    """Every model; a run directory is its last checkpoint, or all of them."""
    for name in options.models:
        folder = at_home(name)
        if not folder.is_dir() or not (folder / "recipe.yaml").is_file():
            yield name
            continue
        require_finished(folder)
        if options.checkpoints:
            yield from (str(path) for path in _checkpoints(folder))
        else:
            yield name


def require_finished(folder: Path) -> None:
    """Refuse a training run that has not come to its end."""
    if (folder / "verdicts.jsonl").exists():
        raise RunError(f"{folder} is the run of an audit", "give a run of robust0 harden")
    if not (folder / _LAST).is_file():
        raise RunError(
            f"the training run in {folder} is not finished: it has no {_LAST}",
            f"go on with robust0 harden --resume {folder}, or name one of its checkpoints",
        )


def _checkpoints(folder: Path) -> list[Path]:
    kept = sorted(folder.glob("epoch-*.safetensors"))
    return (
        [*kept, folder / _LAST]
        if kept
        else [path for path in (folder / _BEST, folder / _LAST) if path.is_file()]
    )


def _images(
    options: StudyOptions, reference: ModelReference, run: RunData | None, progress: Progress
) -> ImageSet:
    if run is not None and options.against_audit:
        subject = run.report.results.subject
        if options.data not in (None, subject.dataset) or options.split != "test":
            raise DataError(
                f"the audit in {run.folder} is of {subject.dataset}'s test images, not of "
                f"{options.data or subject.dataset} {options.split}",
                "leave out --data and --split, or give an audit of the same data",
            )
        data = open_audited(
            subject.dataset, run.images, subject.data_fingerprint, options.data_dir, progress
        )
        return data.subset(torch.arange(min(options.images, len(data))))
    asked = AuditOptions(
        model=reference.shown, data=options.data, data_dir=options.data_dir, factory=options.factory
    )
    name, _ = data_name(asked, reference)
    recipe = resolve_audit(asked, reference, name, None).recipe
    data = open_images(recipe.dataset, options.split, options.data_dir, progress)
    if options.images < 1:
        raise RecipeError(f"a study needs images, got {options.images}", "for example --images 256")
    return choose(data, options.images)[0]


def _studied(
    options: StudyOptions, reference: ModelReference, label: str, data: ImageSet,
    run: RunData | None, device: torch.device,
) -> StudySubject:  # fmt: skip
    subject = open_subject(reference, data, device, seed=options.seed)
    choice = AttackChoice(
        options.eps, options.unit, options.effort, options.seed, options.evaluation
    )
    attacks: list[Perturber] = [perturber(words, reference, choice) for words in options.attacks]
    facts: dict[str, Any] = {"method": subject.method}
    if reference.metadata is not None and reference.metadata.epochs is not None:
        facts["epoch"] = reference.metadata.epochs
    if run is not None:
        check_audit_of(run, reference, subject.sha256)
        if options.against_audit:
            attacks = [attacks[0], strongest(run)]
    row = audit_row(run, reference.shown)
    if row is not None:
        facts["audit"] = row
    return StudySubject(label, subject.network, subject.identity, tuple(attacks), facts)


def _labels(shown: list[str]) -> list[str]:
    """Short names, each once."""
    labels: list[str] = []
    for text in shown:
        path = Path(text)
        short = path.name
        if path.is_file():
            inside = (path.parent / "recipe.yaml").is_file()
            short = f"{path.absolute().parent.name}/{path.stem}" if inside else path.stem
        label, number = short, 2
        while label in labels:
            label, number = f"{short} ({number})", number + 1
        labels.append(label)
    return labels


@contextmanager
def study_folder(out: Path | None, part: str) -> Iterator[Path]:
    """The study's folder, locked; several parts may share one."""
    now = datetime.datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S")
    folder = out or Path("runs") / f"{now}_study_{part}"
    if any((folder / name).exists() for name in ("recipe.yaml", "verdicts.jsonl")):
        raise RunError(f"{folder} holds a run of another kind", "choose another -o")
    with owned(folder):
        yield folder
