"""report.html of a certificate: one file that needs nothing else, every name in it escaped."""

import shlex
from dataclasses import dataclass

import numpy as np

from robust0 import wording
from robust0.certifying.finish import extremes
from robust0.certifying.rundata import CertificateRun
from robust0.proofs import BracketRow, CertificateReport, CertificateResults, CertifiedClass
from robust0.writers.certificate_picture import bracket_svg, curves_svg, radii_svg
from robust0.writers.page import page
from robust0.writers.picture import data_uri

_MOST_NAMED = 60  # classes with a row each; the rest is in report.json
_MOST_BYTES = 4_000_000  # of pictures


@dataclass(frozen=True, slots=True)
class Shown:
    """One image of the gallery, as a data URI, with its words."""

    image: int
    label: str
    radius: str
    picture: str


def render_certificate(run: CertificateRun) -> str:
    """The page of a certificate."""
    report = run.report
    results = report.results
    strongest, weakest = extremes(run.info.facts, run.proofs)
    asked = set(results.settings.pixels)
    return page(
        "certificate.html.j2",
        title=f"robust0 certify: {wording.tidy(results.subject.model, 80)}",
        results=results,
        run=report.run,
        headline=results.headline,
        identity=wording.certificate_identity(results),
        meaning=wording.certificate_meaning(results.settings),
        shown={
            row.name: [p for p in row.points if p.pixels in asked] for row in results.classifiers
        },
        pixels=wording.pixels,
        trials=wording.trials,
        curves=curves_svg(results),
        radii=radii_svg(results.headline.radii),
        bracket=bracket_svg(results.bracket) if results.bracket else None,
        bracket_rows=_bracket_rows(results),
        gap=lambda row: f"{100 * (row.attacked.share - row.certified.share):.1f}",
        classes=results.headline.classes[:_MOST_NAMED],
        hidden_classes=max(0, len(results.headline.classes) - _MOST_NAMED),
        class_share=_share,
        height=run.info.image_shape[1],
        width=run.info.image_shape[2],
        galleries=[
            ("Strongest", "the largest certified radii", _gallery(run, strongest)),
            ("Weakest", "the smallest certified radii of right answers", _gallery(run, weakest)),
        ],
        facts=_facts(report),
        command=wording.tidy(shlex.join(report.run.command), 2000),
    )


def _bracket_rows(results: CertificateResults) -> list[BracketRow]:
    if results.bracket is None:
        return []
    shown = {0, *results.settings.pixels}
    return [row for row in results.bracket.rows if row.pixels in shown]


def _share(row: CertifiedClass, pixels: int) -> float:
    """In percent; at no pixels, of right answers."""
    count = row.clean if pixels == 0 else row.certified[pixels]
    return 100 * count / row.images if row.images else 0.0


def _gallery(run: CertificateRun, images: list[int]) -> list[Shown]:
    names = {row.label: wording.tidy(row.name, 60) for row in run.report.results.headline.classes}
    proofs = {proof.image: proof for proof in run.proofs}
    place, shown, size = run.clean.rows(), list[Shown](), 0
    headline = run.info.facts.settings.headline
    for image in images:
        pixels = run.clean.images[place[image]].astype(np.float32) / np.float32(255)
        picture = data_uri(pixels)
        size += len(picture)
        if shown and size > _MOST_BYTES:
            break
        proof = proofs[image]
        radius = wording.pixels(proof.answers[headline].radius)
        shown.append(Shown(image, wording.class_name(names, proof.label), radius, picture))
    return shown


def _facts(report: CertificateReport) -> list[tuple[str, list[tuple[str, str]]]]:
    """Everything that must be equal for another run to give these numbers."""
    subject, settings, run = report.results.subject, report.results.settings, report.run
    return [
        (
            "Classifier",
            [
                ("model", subject.model),
                ("architecture", subject.arch),
                ("trained with", subject.method or "unknown"),
                ("sha256 of the checkpoint", subject.sha256 or "not a file"),
                *((key, str(value)) for key, value in settings.details.items()),
            ],
        ),
        (
            "Data",
            [
                ("dataset", f"{subject.dataset} {subject.split}"),
                ("images; classes", f"{subject.images:,}; {subject.classes:,}"),
                ("data fingerprint", subject.data_fingerprint),
                ("sha256 of the image ids", subject.image_ids),
            ],
        ),
        (
            "Run",
            [
                ("device; torch", f"{settings.device}; {settings.torch}"),
                ("processes", str(run.processes)),
                ("started; finished", f"{run.started}; {run.finished}"),
                *((f"seconds of {k}", wording.seconds(v)) for k, v in run.attack_seconds.items()),
                ("versions", ", ".join(f"{k} {v}" for k, v in run.versions.items())),
            ],
        ),
    ]
