"""Publishing: from a training run and an audit of its model to a card, weights, report, verdicts.

The published report names the model by its id and no folder of the machine it was made on;
everything else is as the audit wrote it.
"""

import hashlib
import json
import re
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from robust0.auditing.finish import report_text
from robust0.auditing.rundata import RunData, read_run
from robust0.commands.zoo_certificate import published_radii, read_publishable
from robust0.errors import ZooError
from robust0.files import atomic, write_text
from robust0.gate.baseline import Baseline, of_run
from robust0.gate.baseline import write as write_verdicts
from robust0.gate.certified import write_certificate_baseline
from robust0.models.checkpoint import Metadata, read_metadata
from robust0.records import Report
from robust0.zoo.cards import Card, Index, IndexEntry, card_text, is_id, is_web, measured
from robust0.zoo.documents import write_yaml
from robust0.zoo.proved import proved
from robust0.zoo.roots import INDEX

MOST_BYTES = 4_000_000  # of weights that lie beside their card
MODEL = "model.safetensors"  # the last checkpoint of a training run
_THREADS = "threads per call (OMP_NUM_THREADS)"  # in the identity of an audit


@dataclass(frozen=True, slots=True)
class Publication:
    """What the user says beside the two runs; None: as the runs have it."""

    id: str | None = None
    title: str | None = None
    licence: str = "MIT"
    external: str | None = None  # where the weights are, if not beside the card
    command: str | None = None  # that trained the model
    certificate: Path | None = None  # its run directory


def add(
    run: Path, audit: Path, folder: Path, said: Publication, *, most: int | None = None
) -> Card:
    """Write the files of a model into a zoo's folder, the card last, and list it in the index.

    Args:
        run: of the training.
        audit: of its model.
        folder: of the zoo.
        said: by the user.
        most: bytes that its weights may have beside the card; default: MOST_BYTES.
    """
    weights = run / MODEL
    if not weights.is_file():
        raise ZooError(
            f"{run} has no {MODEL}", "give the run directory of a finished robust0 harden"
        )
    known, made = read_metadata(weights), read_run(audit)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    _check(made, digest, weights)
    name = said.id or _default_id(known)
    if not is_id(name):
        raise ZooError(f"{name!r} cannot be an id", "choose --id from a-z, 0-9, '.', '_' and '-'")
    if (folder / f"{name}.yaml").exists():
        raise ZooError(f"{folder} already has {name}", "choose another --id, or remove that card")
    _check_size(weights, said.external, MOST_BYTES if most is None else most)
    report, verdicts = _published(made, name)
    proof = (
        None if said.certificate is None else read_publishable(said.certificate, digest, weights)
    )
    facts = {
        "id": name,
        "title": said.title or _title(known),
        "licence": said.licence,
        "training_command": said.command or _command(run),
        "source": said.external or f"{name}.safetensors",
        "sha256": digest,
        "size": weights.stat().st_size,
        "audit": measured(report, _threads(made)),
    }
    with tempfile.TemporaryDirectory() as scratch:
        # Everything is made and checked before the zoo is touched.
        facts |= _papers(Path(scratch), name, report, verdicts)
        if proof is not None:
            radii = Path(scratch, f"{name}.radii.json")
            write_certificate_baseline(radii, published_radii(proof, name))
            facts["certificate"] = proved(proof.report.results, radii.name, _digest(radii))
        card = _card(known, facts)
        _check_card(card, report)
        kept = [card.report, card.verdicts]
        kept += [] if card.certificate is None else [card.certificate.radii]
        files = {file: Path(scratch, file) for file in kept}
        if said.external is None:
            files[card.source] = weights
        _install(folder, card, files)
    return card


def _papers(scratch: Path, name: str, report: Report, verdicts: Baseline) -> dict[str, str]:
    """Write report and verdicts; the lines of the card about them."""
    facts = {"report": f"{name}.report.json", "verdicts": f"{name}.verdicts.json"}
    write_text(scratch / facts["report"], report_text(report))
    write_verdicts(scratch / facts["verdicts"], verdicts)
    return facts | {f"{kind}_sha256": _digest(scratch / file) for kind, file in facts.items()}


def _install(folder: Path, card: Card, files: dict[str, Path]) -> None:
    """Copy the files into the zoo, each whole or not at all, the card and the index last."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, source in files.items():
            with atomic(folder / file) as temporary:
                shutil.copyfile(source, temporary)
        write_text(folder / f"{card.id}.yaml", card_text(card))
        write_index(folder)
    except OSError as problem:
        raise ZooError(
            f"cannot write {problem.filename or folder}: {problem.strerror or problem}",
            "choose a folder you may write to with --zoo",
        ) from problem


def write_index(folder: Path) -> Index:
    """List every card of a folder in index.yaml, for those who cannot list the folder."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        if is_id(path.stem):
            data = path.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            found[path.stem] = IndexEntry(sha256=digest, size=len(data))
    index = Index(cards=found)
    write_text(folder / INDEX, write_yaml(index))
    return index


def _card(known: Metadata, facts: dict[str, Any]) -> Card:
    missing = [
        name for name in ("dataset", "method", "eval_budget", "epochs", "seed", "created")
        if getattr(known, name) is None
    ]  # fmt: skip
    if missing:
        raise ZooError(
            f"the checkpoint does not say its {', '.join(missing)}",
            "only checkpoints of robust0 harden can be published",
        )
    spec = known.spec()
    dumped = known.model_dump()
    same = ("dataset", "variant", "method", "train_budget", "eval_budget", "epochs", "seed")
    try:
        return Card(
            architecture=spec.arch,
            arch_args=dict(spec.create_args()),
            date=known.created,
            recipe=known.recipe,
            versions=known.versions,
            **{key: dumped[key] for key in same},
            **facts,
        )
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ZooError(f"no card can be written: {place}: {first['msg']}", "change it") from problem


def _check(made: RunData, digest: str, weights: Path) -> None:
    """Refuse an audit that is about something else, or whose numbers may not be used."""
    results = made.report.results
    if results.subject.sha256 != digest:
        raise ZooError(
            f"the audit in {made.folder} is not about {weights}", f"run robust0 audit {weights}"
        )
    violations = sum(row.violations for result in results.budgets for row in result.attacks)
    fatal = [flag.name for flag in results.flags if flag.fatal]
    if violations or fatal:
        reason = ", ".join(fatal) or f"attacks broke their promises {violations} times"
        raise ZooError(
            f"the audit in {made.folder} is not reliable: {reason}", "its report explains why"
        )


def _check_card(card: Card, report: Report) -> None:
    """Refuse a card that says something else than its report."""
    problems = card.problems(report)
    if problems:
        raise ZooError(f"the audit is of another model: {problems[0]}", "audit this model")


def _check_size(weights: Path, external: str | None, most: int) -> None:
    size = weights.stat().st_size
    if external is not None and not is_web(external):
        raise ZooError(
            f"--external {external!r} is not an https address",
            "upload the weights first, then give their https:// URL",
        )
    if external is None and size > most:
        raise ZooError(
            f"{weights} has {size:,} bytes, at most {most:,} may lie beside a card",
            "upload it elsewhere and add --external URL",
        )


def _published(made: RunData, name: str) -> tuple[Report, Baseline]:
    """The report and the verdicts with the model called by its id."""
    verdicts = of_run(made)  # refuses a report that does not follow from its verdicts
    report, was = made.report, made.report.results.subject.model
    subject = report.results.subject.model_copy(update={"model": name})
    words = tuple(name if word == was else _without_folder(word) for word in report.run.command)
    report = report.model_copy(
        update={
            "results": report.results.model_copy(update={"subject": subject}),
            "run": report.run.model_copy(update={"command": words}),
        }
    )
    return report, verdicts.model_copy(update={"subject": subject})


def _without_folder(word: str) -> str:
    """An argument whose absolute path, if it is one, is cut to its last part."""
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return f"{option}{equals}{Path(value).name}" if Path(value).is_absolute() else word


def _command(run: Path) -> str:
    """The command that started a training run, if the run remembers it."""
    hint = "say it: --command 'robust0 harden ...'"
    try:
        words = json.loads((run / "options.json").read_text(encoding="utf-8")).get("command")
    except (OSError, ValueError, AttributeError) as problem:
        raise ZooError(f"{run} does not remember how it was started", hint) from problem
    if not isinstance(words, list) or not words:
        raise ZooError(f"{run} does not remember how it was started", hint)
    return shlex.join(_without_folder(str(word)) for word in words)


def _threads(made: RunData) -> int:
    value = made.info.identity.get(_THREADS)
    return value if isinstance(value, int) else 1


def _default_id(known: Metadata) -> str:
    words = [known.dataset, known.method, known.spec().arch]
    text = "-".join(word for word in words if word).lower()
    return re.sub(r"[^a-z0-9._-]+", "-", text).strip("-._")[:100]


def _title(known: Metadata) -> str:
    return f"{known.spec().arch} trained on {known.dataset} with {known.method}"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
