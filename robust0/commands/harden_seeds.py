"""One training run per seed, in folders of one folder: begun, resumed and summed up as a whole."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from robust0.commands.harden import (
    fresh_folder,
    fresh_recipe,
    refuse_used_folder,
    remember,
)
from robust0.commands.harden_recipe import SEEDS, HardenOptions
from robust0.distributed import World
from robust0.errors import RunError
from robust0.files import write_text
from robust0.runs.folder import owned, read_lines, writing

SUMMARY = "summary.json"
Reduce = Callable[[Sequence[float]], float | None]
MEASURES = ("clean", "training_attack", "probe", "best_probe")


@dataclass(frozen=True, slots=True)
class SeedRuns:
    """The runs of a command; ``folder`` is theirs together, None where there is only one."""

    folder: Path | None
    runs: tuple[HardenOptions, ...]  # that are still to be trained, in order
    begun: bool  # their folders are written


def runs_of(options: HardenOptions, world: World) -> SeedRuns:
    """The runs that a command line means; of those of a resumed folder, the unfinished ones."""
    if options.resume is not None and (options.resume / SEEDS).is_file():
        folder = options.resume
        runs = [replace(options, resume=folder / _name(seed)) for seed in read_seeds(folder)]
        return SeedRuns(folder, tuple(run for run in runs if not _finished(run.resume)), begun=True)
    if not options.seeds:
        return SeedRuns(None, (options,), begun=False)
    folder = options.out or fresh_folder(fresh_recipe(options))
    runs = [
        replace(options, seeds=(), seed=seed, out=folder / _name(seed)) for seed in options.seeds
    ]
    begun = world.restarts > 0 and (folder / SEEDS).is_file()
    if not begun:
        refuse_used_folder(folder)
        if any(folder.glob("seed-*/*.safetensors")):
            raise RunError(f"{folder} already holds runs", "choose another -o")
    return SeedRuns(folder, tuple(r for r in runs if not begun or not _finished(r.out)), begun)


def begin_seeds(group: SeedRuns) -> None:
    """Write every run's folder, then the list of seeds, which marks the whole as begun."""
    if group.folder is None or group.begun:
        return
    with owned(group.folder), writing(group.folder, "harden"):
        for run in group.runs:
            if run.out is not None:
                run.out.mkdir(parents=True, exist_ok=True)
                remember(run.out, fresh_recipe(run), run)
        seeds = [run.seed for run in group.runs]
        write_text(group.folder / SEEDS, json.dumps({"seeds": seeds}) + "\n")


def read_seeds(folder: Path) -> list[int]:
    """The seeds of a folder of runs."""
    path = folder / SEEDS
    try:
        seeds = json.loads(path.read_text(encoding="utf-8"))["seeds"]
        if not all(type(seed) is int and seed >= 0 for seed in seeds):
            raise TypeError("seeds must be whole numbers")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as problem:
        raise RunError(
            f"{path} is damaged: {type(problem).__name__}: {problem}",
            "restore the file, or start new runs with another -o",
        ) from problem
    return list(seeds)


@dataclass(frozen=True, slots=True)
class SeedResult:
    """Accuracies on reserved images after the last epoch of a run, and the best probe."""

    seed: int
    clean: float | None
    training_attack: float | None
    probe: float | None
    best_probe: float | None


def summarise_seeds(folder: Path) -> list[dict[str, object]]:
    """Write the summary of all seeds; its rows, with mean and deviation, for a table."""
    results = [_result(folder / _name(seed), seed) for seed in read_seeds(folder)]
    mean, deviation = _over(results, statistics.fmean), _over(results, _deviation)
    text = {"runs": [asdict(result) for result in results], "mean": mean, "deviation": deviation}
    with writing(folder, "harden"):
        write_text(folder / SUMMARY, json.dumps(text, indent=2) + "\n")
    rows = [(str(result.seed), asdict(result)) for result in results]
    return [
        {"seed": name, **{key.replace("_", " "): _percent(row[key]) for key in MEASURES}}
        for name, row in (*rows, ("mean", mean), ("deviation", deviation))
    ]


def _result(folder: Path, seed: int) -> SeedResult:
    epochs = [line for line in read_lines(folder / "metrics.jsonl") if line["event"] == "epoch"]
    if not epochs:
        return SeedResult(seed, None, None, None, None)
    last = epochs[-1]
    best = [line["probe"] for line in epochs if line["best"]]
    return SeedResult(
        seed, last["clean"], last["training_attack"], last["probe"], max(best, default=None)
    )


def _over(results: Sequence[SeedResult], reduce: Reduce) -> dict[str, float | None]:
    """A number per measure, where every run has one."""
    columns = {key: [getattr(result, key) for result in results] for key in MEASURES}
    return {key: None if None in values else reduce(values) for key, values in columns.items()}


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _percent(value: object) -> str | None:
    return f"{100 * value:.1f} %" if isinstance(value, float) else None


def _name(seed: int | None) -> str:
    return f"seed-{seed}"


def _finished(folder: Path | None) -> bool:
    return folder is not None and (folder / "model.safetensors").is_file()
