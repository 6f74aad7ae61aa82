"""From a resolved recipe to a TrainJob: opens data, builds the network, composes the method."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from robust0.attacks.guided_swap import GuidedSwap
from robust0.attacks.sparse_rs import SparseRS
from robust0.data.datasets import open_dataset
from robust0.data.imageset import ImageSet, side
from robust0.errors import DataError, RecipeError
from robust0.events import Transfer
from robust0.models.checkpoint import Budget, save_checkpoint
from robust0.recipes.load import ResolvedRecipe, section_hash
from robust0.recipes.schema import DatasetSpec, ThreatSpec, TrainingSpec
from robust0.rng import Stream
from robust0.runs.network import TrainableNetwork, network_for
from robust0.threats import Threat
from robust0.training.job import TrainJob, Watch
from robust0.training.methods.base import Method
from robust0.training.methods.parts import PartStep


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """What the command line says beside the recipe: files and hardware."""

    folder: Path
    device: torch.device
    data_dir: Path | None = None
    start_from: str | None = None  # a checkpoint to fine-tune
    factory: str | None = None  # package.module:callable that makes the network
    compile: bool = False
    stop_on_overfitting: bool = False
    keep_epochs: bool = False  # a checkpoint after every epoch
    workers: int | None = None  # processes that decode image files; None: one per core
    progress: Callable[[Transfer], None] | None = None  # told about a download
    images: ImageSet | None = None  # in the caller's hands; None: the recipe's data
    network: TrainableNetwork | None = None  # in the caller's hands; None: the recipe's model


def build_training(resolved: ResolvedRecipe, request: TrainRequest) -> TrainJob:
    """The job of a recipe; refuses what the data or the model cannot do."""
    recipe = resolved.recipe
    data = (request.images or _open(recipe.dataset, request)).to(request.device)
    spec, threat = recipe.training, threat_of(recipe.training.threat)
    for budget in (threat, threat_of(recipe.threat)):
        budget.check(torch.empty(1, *data.image_shape, device="meta"))
    if spec.precision == "fp16" and request.device.type != "cuda":
        raise RecipeError(
            "training.precision fp16 needs a CUDA device", "use bf16 or fp32 on this device"
        )
    network = request.network or network_for(
        recipe.model, data, source=request.start_from, factory=request.factory, seed=spec.seed,
        classifier=spec.step.notes() if isinstance(spec.step, PartStep) else None,
    )  # fmt: skip
    if isinstance(spec.step, PartStep) and network.classifier is None:
        raise RecipeError(
            f"training.method {spec.method} builds its network itself: it sees parts of images",
            "name a model instead of giving a network",
        )
    network.describe(data)  # what a checkpoint could not say is refused now, not after an epoch
    rows, reserved = split_rows(data, spec.reserved, spec.images)
    method = compose(spec, threat, data.labels, len(data.class_names))
    fingerprint = data.subset(rows).fingerprint
    defended = threat_of(recipe.threat)
    budgets = f"trained against {threat}, evaluated at {defended}"
    if isinstance(spec.step, PartStep):  # no attack is part of it
        budgets, threat = f"certified at {defended}", defended
    return TrainJob(
        title=f"{network.name} · {spec.method} · {data.name}, {side(data)} images · {budgets}",
        folder=request.folder,
        network=network.module.to(request.device),
        fine_tunes=network.start != "fresh",
        data=data,
        rows=rows,
        reserved=reserved,
        method=method,
        averaging=spec.averaging,
        optim=spec.optimizer,
        schedule=spec.schedule,
        watch=_watch(spec, defended, stop=request.stop_on_overfitting),
        epochs=spec.epochs,
        batch_size=spec.batch_size,
        accumulate=spec.accumulate,
        augment=spec.augment,
        workers=request.workers,
        precision=spec.precision,
        channels_last=spec.channels_last,
        compile=request.compile,
        clip_norm=spec.clip_norm,
        snapshot_minutes=spec.checkpoint_minutes,
        seed=spec.seed,
        device=request.device,
        identity={
            "recipe hash": section_hash(recipe, "dataset", "model", "threat", "training"),
            "training images": fingerprint,
            "network": network.name,
            "start": network.start,
            "device": request.device.type,
            "torch": torch.__version__,
            "compile": request.compile,
        },
        export=_Exporter(resolved, network, data, fingerprint),
        notes=(*data.origin.notes, *network.notes, *_budget_notes(defended, threat)),
        keep_epochs=request.keep_epochs,
    )


def _open(spec: DatasetSpec, request: TrainRequest) -> ImageSet:
    return open_dataset(
        spec.name, "train", data_dir=request.data_dir, variant=spec.variant,
        image_size=spec.image_size, class_list=spec.classes, progress=request.progress,
    )  # fmt: skip


def threat_of(spec: ThreatSpec) -> Threat:
    """The threat of a recipe's budget."""
    return Threat.of(spec.budget, spec.unit)


def split_rows(data: ImageSet, reserved: int, images: int | None) -> tuple[Tensor, Tensor]:
    """Positions to train on and positions kept out; the same for every run on this data.

    At most a tenth of a small set is kept out.
    """
    kept_out = min(reserved, len(data) // 10)
    order = Stream.of("reserved").permutation(len(data)).to(data.device)
    held, free = order[:kept_out], order[kept_out:]
    if images is not None and images > len(free):
        raise DataError(
            f"{images} training images were asked for, {data.name} has {len(free)} beside the "
            f"{kept_out} reserved ones",
            f"use at most {len(free)}",
        )
    return free[:images].sort().values, held


def compose(spec: TrainingSpec, threat: Threat, labels: Tensor, classes: int) -> Method:
    """The method from its parts."""
    plain = Method(
        noise=spec.noise,
        targets=spec.labels.build(labels, classes),
        learns_from=spec.labels.input,
        inner=spec.inner,
        objective=spec.objective,
        threat=threat,
    )
    return spec.step.build(plain)


def _watch(spec: TrainingSpec, threat: Threat, *, stop: bool) -> Watch:
    probe = spec.probe
    attacks: tuple[tuple[str, GuidedSwap | SparseRS], ...] = (
        ("guided-swap", GuidedSwap(forwards=probe.forwards)),
        ("sparse-rs", SparseRS(queries=probe.queries)),
    )
    if isinstance(spec.step, PartStep):
        attacks = ()  # accuracy is proved instead
    return Watch(attacks, threat, probe.images, probe.every, probe.collapse, stop)


@dataclass(frozen=True, slots=True)
class _Exporter:
    """Writes a checkpoint with everything an audit needs to know."""

    resolved: ResolvedRecipe
    network: TrainableNetwork
    data: ImageSet
    fingerprint: str

    def __call__(self, path: Path, module: nn.Module, metrics: dict[str, float]) -> None:
        recipe = self.resolved.recipe
        metadata = self.network.describe(
            self.data,
            dataset=self.data.name,
            variant=recipe.dataset.variant,
            training_ids=self.fingerprint,
            recipe=self.resolved.hash,
            method=recipe.training.method,
            train_budget=_budget(recipe.training.threat),
            eval_budget=_budget(recipe.threat),
            epochs=metrics["epoch"],
            seed=recipe.training.seed,
            metrics=metrics,
        )
        save_checkpoint(path, module, metadata)


def _budget_notes(defended: Threat, trained: Threat) -> tuple[str, ...]:
    """Why training and evaluation do not have the same budget."""
    if trained.unit != defended.unit or trained.budget <= defended.budget:
        return ()
    return (
        f"the training attack may change {trained} so that {defended} are withstood: an attack of "
        "few steps teaches little at the smaller budget",
    )


def _budget(spec: ThreatSpec) -> Budget:
    return Budget(unit=spec.unit, amount=spec.budget)
