"""Hand-made run directories, written by the audit's own writers and folded by its own summary."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np

from robust0.auditing import store
from robust0.auditing.attempts import Attempts, write_attempts
from robust0.auditing.facts import AttackFacts, Facts, RunFile, write_checks, write_run
from robust0.auditing.finish import write_clean, write_report
from robust0.auditing.plan import Book
from robust0.auditing.summary import plan_of, summarise_audit
from robust0.records import CLEAN, Flag, Report, RunInfo, Settings, Subject, Verdict
from robust0.threats.perturbation import Perturbation

ATTACKS = ("sparse-pgd-p", "sparse-pgd-u", "sparse-rs", "guided-swap")
SAA = ATTACKS[:3]

Breaks = Callable[[int, str, int], bool]  # image, attack, budget


@dataclass(frozen=True)
class Recipe:
    """What a hand-made run looks like."""

    images: int = 40
    size: int = 8
    channels: int = 3
    classes: Sequence[str] = ("ant", "bee", "cat")
    attacks: Sequence[str] = ATTACKS
    budgets: Sequence[int] = (3,)
    mode: str = "battery"
    effort: str = "quick"
    seed: int = 0
    unit: str = "pixel"
    model: str = "model.safetensors"
    sha256: str | None = "ab" * 32
    fingerprint: str = "cd" * 32
    revision: int = 1
    steps: int = 100
    thorough: bool = False
    first_id: int = 100
    wrong: Sequence[int] = (0, 1, 2, 3)  # positions misclassified when clean
    breaks: Breaks | None = None
    flags: Sequence[Flag] = ()
    pixels: np.ndarray | None = None
    labels: np.ndarray | None = None
    untested: Sequence[str] = ("patches", "targeted attacks")
    command: Sequence[str] = ("robust0", "audit", "model.safetensors", "--eps", "3")
    options: dict = field(default_factory=dict)


def breaks_some(image: int, attack: str, budget: int) -> bool:
    """About 0.15 per attack at budget 3, more for larger budgets, never less."""
    draw = int(sha256(f"{image} {attack}".encode()).hexdigest()[:8], 16) / 2**32
    return draw < 0.05 * budget


def facts_of(recipe: Recipe, ids: Sequence[int]) -> Facts:
    names = tuple(recipe.attacks)
    attacks = tuple(
        AttackFacts(
            name=name, kind=name.removesuffix("-p").removesuffix("-u"), revision=recipe.revision,
            params={"steps": recipe.steps, "projected": name.endswith("-p")},
            notes=("subsampled",) if name == "guided-swap" else (),
            black_box=name == "sparse-rs", passes=dict.fromkeys(recipe.budgets, 200),
        )
        for name in names
    )  # fmt: skip
    group = tuple(name for name in SAA if name in names)
    return Facts(
        subject=Subject(
            model=recipe.model, arch="preact_resnet18_w16", sha256=recipe.sha256,
            method="fast-ls-l0", dataset="toy", split="test", data_fingerprint=recipe.fingerprint,
            image_ids=sha256(repr(list(ids)).encode()).hexdigest(), images=recipe.images,
            classes=len(recipe.classes), mean=(0.5,) * recipe.channels,
            std=(0.25,) * recipe.channels,
        ),
        settings=Settings(
            recipe="ef" * 32, mode=recipe.mode, effort=recipe.effort, seed=recipe.seed,
            budgets=tuple(recipe.budgets), unit=recipe.unit, batch_size=16,
            search_dtype="float32", compiled=False, device="cpu", torch="2.15.0",
        ),
        thorough=recipe.thorough,
        class_names=tuple(recipe.classes),
        attacks=attacks,
        ensembles={"saa": group} if len(group) == len(SAA) else {},
        untested=tuple(recipe.untested),
    )  # fmt: skip


def clean_pixels(recipe: Recipe) -> tuple[np.ndarray, np.ndarray]:
    if recipe.pixels is not None:
        return recipe.pixels, recipe.labels
    draw = np.random.default_rng(1)
    shape = (recipe.images, recipe.channels, recipe.size, recipe.size)
    labels = np.arange(recipe.images) % len(recipe.classes)
    return draw.integers(0, 256, shape).astype(np.uint8), labels


def verdicts_of(recipe: Recipe, facts: Facts, ids: Sequence[int], labels: Sequence[int]) -> Book:
    """Every verdict the plan asks for."""
    breaks, book, many = recipe.breaks or breaks_some, Book(), len(recipe.classes)
    for row, (image, label) in enumerate(zip(ids, labels, strict=True)):
        wrong = row in recipe.wrong
        book.add([_verdict(recipe, image, label, CLEAN, 0, wrong, (label + wrong) % many)])
    label_of = dict(zip(ids, labels, strict=True))
    plan = plan_of(facts)
    for stage in plan.stages():
        budget, attack = stage
        for image in plan.wanted(stage, ids, book):
            hit = breaks(image, attack, budget)
            label = label_of[image]
            book.add([_verdict(recipe, image, label, attack, budget, hit, (label + hit) % many)])
    return book


def _verdict(recipe, image, label, attack, budget, fooled, prediction) -> Verdict:
    needed = 1 + image % budget if budget else 0
    margin = (-0.5 if fooled else 0.5) - (image % 7) / 100 * (-1 if not fooled else 1)
    return Verdict(
        image=image, label=int(label), attack=attack, revision=recipe.revision, unit=recipe.unit,
        budget=budget, fooled=bool(fooled), prediction=int(prediction), margin=margin,
        distance=budget, needed=needed, forwards=120 + image % 5, backwards=100 if attack != CLEAN
        else 0, fragile=image % 13 == 0, violation="",
    )  # fmt: skip


def attempts_of(recipe: Recipe, book: Book) -> dict:
    per_site = recipe.channels if recipe.unit == "pixel" else 1
    total = recipe.size**2 * recipe.channels // per_site
    found = {}
    for key, verdict in book.verdicts.items():
        if verdict.attack == CLEAN:
            continue
        draw = np.random.default_rng([verdict.image, verdict.budget, len(verdict.attack)])
        sites = draw.choice(total, verdict.needed, replace=False).astype(np.int32)
        values = draw.integers(0, 2, (verdict.needed, per_site)).astype(np.float32)
        found[key] = Perturbation(sites, values)
    return found


def make_report(recipe: Recipe | None = None) -> Report:
    recipe = recipe or Recipe()
    return _fold(recipe)[0]


def make_run(folder: Path, recipe: Recipe | None = None) -> Path:
    """A finished run directory."""
    recipe = recipe or Recipe()
    report, facts, book, ids = _fold(recipe)
    pixels, labels = clean_pixels(recipe)
    folder.mkdir(parents=True, exist_ok=True)
    shape = tuple(pixels.shape[1:])
    write_run(
        folder,
        RunFile(
            identity={"seed": recipe.seed}, options=dict(recipe.options), image_shape=shape,
            facts=facts, started="2026-01-31T10:22:08+00:00", command=tuple(recipe.command),
            processes=1,
        ),
    )  # fmt: skip
    write_checks(folder, tuple(recipe.flags))
    (folder / "recipe.yaml").write_text("schema: 1\nname: toy # <b>\n", encoding="utf-8")
    lines = [verdict.model_dump_json() + "\n" for verdict in book.verdicts.values()]
    (folder / store.VERDICTS).write_text("".join(lines), encoding="utf-8")
    write_attempts(folder / store.ATTEMPTS, Attempts(recipe.unit, shape, attempts_of(recipe, book)))
    write_clean(folder, ids, labels.tolist(), pixels)
    write_report(folder, report)
    return folder


def _fold(recipe: Recipe) -> tuple[Report, Facts, Book, list[int]]:
    ids = list(range(recipe.first_id, recipe.first_id + recipe.images))
    facts = facts_of(recipe, ids)
    _, labels = clean_pixels(recipe)
    book = verdicts_of(recipe, facts, ids, labels.tolist())
    results = summarise_audit(facts, list(book.verdicts.values()), recipe.flags)
    info = RunInfo(
        started="2026-01-31T10:22:08+00:00", finished="2026-01-31T10:25:11+00:00", seconds=183.2,
        attack_seconds={name: 12.5 + 20 * i for i, name in enumerate(recipe.attacks)}, processes=1,
        host="Linux x86_64, 2 cores", versions={"robust0": "0.1.0", "torch": "2.15.0"},
        command=tuple(recipe.command),
    )  # fmt: skip
    return Report(results=results, run=info), facts, book, ids
