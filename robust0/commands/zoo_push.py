"""The folder that ``robust0 zoo push`` uploads: a zoo of one model that timm can load as well."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from robust0 import upgrades
from robust0.commands.zoo_add import MODEL, Publication, add, write_index
from robust0.errors import ZooError
from robust0.files import at_home, write_text
from robust0.gate.baseline import Baseline
from robust0.gate.certified import CertificateBaseline
from robust0.gate.certified_claims import certificate_papers
from robust0.gate.claims import papers
from robust0.models.build import skeleton
from robust0.models.checkpoint import Metadata, read_metadata
from robust0.records import Report
from robust0.zoo.cards import Card, card_text
from robust0.zoo.documents import read_json
from robust0.zoo.fetch import Found, Progress, attachment, drive, find_card, weights
from robust0.zoo.local import is_folder
from robust0.zoo.model_card import model_card

CONFIG, README = "config.json", "README.md"
_UNLIMITED = 1 << 40
# Of timm's own description of an architecture: what its weights need to be loaded and fitted.
_KEPT = ("fixed_input_size", "interpolation", "crop_pct", "crop_mode", "classifier", "first_conv")


def pack_model(
    source: str,
    repository: str,
    folder: Path,
    *,
    zoo: str | None = None,
    audit: Path | None = None,
    said: Publication,
    progress: Progress | None = None,
) -> Card:
    """Write everything that will be uploaded into an empty folder; the card in it.

    Args:
        source: an id of a zoo, or the run directory of a training.
        repository: OWNER/REPO that will hold it.
        folder: for the files.
        zoo: of the id.
        audit: the run directory of the audit of a run.
        said: what the user says of a run.
        progress: told of downloads.
    """
    if not is_folder(source):
        return _packed(find_card(source, zoo), repository, folder, progress)
    if audit is None:
        raise ZooError(
            f"{source} is a run: what is published needs an audit",
            f"run robust0 audit {source} -o AUDIT_RUN, then add --audit AUDIT_RUN",
        )
    with tempfile.TemporaryDirectory() as scratch:
        card = add(at_home(source), audit, Path(scratch), said, most=_UNLIMITED)
        return _packed(find_card(card.id, scratch), repository, folder, progress)


def _packed(found: Found, repository: str, folder: Path, progress: Progress | None) -> Card:
    """Bring and check the files of a model before any of them is written."""
    brought = {MODEL: drive(weights(found), progress)}
    card = found.card.model_copy(update={"source": MODEL})
    brought[card.report] = drive(attachment(found, "report"), progress)
    brought[card.verdicts] = drive(attachment(found, "verdicts"), progress)
    report = read_json(brought[card.report], Report, upgrades.report)
    problems = papers(card, report, read_json(brought[card.verdicts], Baseline, upgrades.baseline))
    if card.certificate is not None:
        radii = drive(attachment(found, "radii"), progress)
        brought[card.certificate.radii] = radii
        stored = read_json(radii, CertificateBaseline, lambda document: document)
        problems += certificate_papers(card, card.certificate, stored)
    if problems:
        raise ZooError(
            f"the card of {card.id} contradicts its papers: {problems[0]}",
            "publish it anew from its runs: robust0 zoo add",
        )
    config = json.dumps(hub_config(read_metadata(brought[MODEL])), indent=2) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in brought.items():
            shutil.copyfile(path, folder / name)
        write_text(folder / CONFIG, config)
        write_text(folder / README, model_card(card, repository))
        write_text(folder / f"{card.id}.yaml", card_text(card))
        write_index(folder)
    except OSError as problem:
        raise ZooError(
            f"cannot write {problem.filename or folder}: {problem.strerror or problem}",
            "choose a folder you may write to with -o",
        ) from problem
    return card


def hub_config(known: Metadata) -> dict[str, Any]:
    """config.json as timm's ``hf-hub:`` reads it; the network inside, where there is a classifier.

    Class count and channels are part of ``pretrained_cfg``: timm takes both from there.
    """
    spec = known.spec()
    network = skeleton(spec)
    described = getattr(network, "pretrained_cfg", None) or {}
    labels = {"label_names": list(known.class_names)} if known.class_names else {}
    return {
        "architecture": spec.arch.partition(".")[0],
        "num_classes": spec.classes,
        "num_features": getattr(network, "num_features", None),
        **labels,
        "model_args": dict(spec.arch_args),
        "pretrained_cfg": {
            **{key: described[key] for key in _KEPT if described.get(key) is not None},
            "input_size": list(spec.input_size),
            "mean": list(spec.mean),
            "std": list(spec.std),
            "num_classes": spec.classes,
            "custom_load": False,
        },
    }
