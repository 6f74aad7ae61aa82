"""A finished run read back from its directory, checked; neither model nor dataset is needed.

The files: ``report.json`` (:class:`robust0.records.Report`), ``verdicts.jsonl``
(:class:`robust0.records.Verdict` per line), ``attempts.safetensors`` (see
robust0.auditing.attempts), ``clean.safetensors`` (``ids`` and ``labels`` (N,) int64, ``images``
(N, C, H, W) uint8), ``recipe.yaml``, and ``run.json`` (:class:`robust0.auditing.facts.RunFile`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from robust0 import upgrades
from robust0.auditing import facts, store
from robust0.auditing.agreement import disagreement, sound
from robust0.auditing.attempts import Attempts, Key, read_attempts
from robust0.auditing.proof import ATTEMPTS, CLEAN_IMAGES, REPORT, VERDICTS, check_seal
from robust0.errors import RunError
from robust0.records import CLEAN, Report, Verdict

RECIPE = "recipe.yaml"
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class CleanImages:
    """Unchanged images of the run by id; for large images perhaps only some of them."""

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    images: NDArray[np.uint8]  # (N, C, H, W)

    def rows(self) -> dict[int, int]:
        """Where each id lies."""
        return {image: row for row, image in enumerate(self.ids.tolist())}


@dataclass(frozen=True)
class RunData:
    """A finished run."""

    folder: Path
    report: Report
    verdicts: Mapping[Key, Verdict]
    info: facts.RunFile

    @cached_property
    def images(self) -> tuple[int, ...]:
        """The ids of all audited images, ascending."""
        return tuple(sorted(image for _, attack, image in self.verdicts if attack == CLEAN))

    @cached_property
    def attempts(self) -> Attempts:
        """Read when first asked for: a plain gate needs none."""
        path = self.folder / ATTEMPTS
        if not path.exists():
            raise missing(path)
        return checked_attempts(read_attempts(path), path)

    @cached_property
    def clean(self) -> CleanImages:
        """Read when first asked for."""
        return read_clean(self.folder / CLEAN_IMAGES, self.info.image_shape)

    def disagreement(self) -> str:
        """Where the report says other things than facts, verdicts and checks; empty: nowhere."""
        flags = facts.read_checks(self.folder)
        if flags is None:
            raise missing(self.folder / facts.CHECKS)
        verdicts = [*self.verdicts.values()]
        return disagreement(self.report.results, self.info.facts, verdicts, flags)

    @cached_property
    def recipe(self) -> str:
        """The resolved recipe as text."""
        return _text(self.folder / RECIPE)


def read_run(folder: Path) -> RunData:
    """The run of a directory; refuses one that is unfinished or damaged."""
    report = read_report(folder)
    path = folder / VERDICTS
    if not path.exists():
        raise missing(path)
    try:
        lines = sound(store.read_verdicts(folder), folder)
    except (OSError, UnicodeDecodeError) as problem:
        raise damaged(path, str(problem)) from problem
    check_seal(folder)
    verdicts = {store.key_of(verdict): verdict for verdict in lines}
    run = RunData(folder, report, verdicts, facts.read_run_file(folder))
    expected = report.results.subject.images
    if len(run.images) != expected:
        raise damaged(path, f"it has {len(run.images)} images, {REPORT} has {expected}")
    return run


def read_report(folder: Path) -> Report:
    """report.json of a run directory."""
    if not folder.is_dir():
        raise RunError(f"there is no run directory {folder}", "make one with robust0 audit -o DIR")
    path = folder / REPORT
    if not path.exists() and (folder / facts.RUN).exists():
        raise RunError(
            f"the run in {folder} is not finished: it has no {REPORT}",
            f"go on with robust0 audit --resume {folder}",
        )
    document = _json(path)
    schema = document.get("schema")
    if schema not in (1, upgrades.SCHEMA):
        raise RunError(
            f"{path} has schema {schema!r}, expected {upgrades.SCHEMA}",
            "use the robust0 version that wrote it",
        )
    return validated(Report, upgrades.report(document), path)


def checked_attempts(attempts: Attempts, path: Path) -> Attempts:
    """Attempts whose places and values fit their images."""
    for (budget, attack, image), attempt in attempts.found.items():
        if not attempt.fits(attempts.image_shape):
            raise damaged(
                path, f"the attempt of {attack} on image {image} at {budget} does not fit an image"
            )
    return attempts


def read_clean(path: Path, image_shape: tuple[int, int, int]) -> CleanImages:
    """The clean images kept with a run."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.exists():
        raise missing(path)
    try:
        tensors = load_file(path)
        ids, labels = (_array(tensors, key, np.int64, 1) for key in ("ids", "labels"))
        images = _array(tensors, "images", np.uint8, 4)
    except (SafetensorError, OSError, ValueError) as problem:
        raise damaged(path, str(problem)) from problem
    if not len(ids) == len(labels) == len(images):
        raise damaged(path, f"{len(ids)} ids, {len(labels)} labels, {len(images)} images")
    if images.shape[1:] != image_shape:
        raise damaged(path, f"its images are {images.shape[1:]}, the run's are {image_shape}")
    return CleanImages(ids, labels, images)


def validated(model: type[M], document: object, path: Path) -> M:
    """A document as the model it claims to be, or a refusal that names the first fault."""
    try:
        return model.model_validate(document)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise damaged(path, f"{place}: {first['msg']}" if place else first["msg"]) from problem


def missing(path: Path) -> RunError:
    """The refusal of an incomplete run directory."""
    return RunError(f"{path} is missing", "the run directory is incomplete: audit again")


def damaged(path: Path, reason: str) -> RunError:
    """The refusal of a file that is not what it should be."""
    return RunError(f"{path} is damaged: {reason}", "restore the file, or audit again")


def _array(tensors: Mapping[str, NDArray[Any]], key: str, dtype: type, axes: int) -> NDArray[Any]:
    array = tensors.get(key)
    if array is None:
        raise ValueError(f"it has no tensor {key!r}")
    if array.dtype != dtype or array.ndim != axes:
        raise ValueError(f"{key} is {array.dtype} {array.shape}, expected {dtype.__name__}")
    return array


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise missing(path) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise damaged(path, str(problem)) from problem


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(_text(path))
    except (ValueError, RecursionError) as problem:
        raise damaged(path, f"not JSON: {problem}") from problem
    if not isinstance(document, dict):
        raise damaged(path, f"expected a JSON object, got a {type(document).__name__}")
    return document
