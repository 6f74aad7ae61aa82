"""Certificates for Python: a classifier and images in, proofs out."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import nn

from robust0.api.inputs import device_of, given_budgets, open_given
from robust0.api.refusals import in_python, warn_of
from robust0.certify_events import CertifyEvent, CertifyFinished
from robust0.certifying.classifiers import Sampling
from robust0.certifying.run import certify_run
from robust0.commands.build_certify import CertifyRequest, build_certify
from robust0.distributed import World
from robust0.events import AuditEvent
from robust0.gate.certified import refuse_broken
from robust0.proofs import Certificate
from robust0.runs.subject import given_subject


def certify(
    module: nn.Module,
    images: Any,  # noqa: ANN401 - a tensor, an array, a DataLoader or a dataset
    labels: Any = None,  # noqa: ANN401
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
) -> Certificate:
    """Prove how many changed pixels the answers of a classifier withstand.

    The module votes over views, looks under masks or is smoothed by ablation
    (:mod:`robust0.models.voting`); nothing can be proved about a plain network.

    Args:
        module: the classifier, for example from :func:`robust0.load`.
        images: (N, C, H, W) or (N, H, W), floats in [0, 1] or uint8; or, with the labels in it, a
            DataLoader, a dataset or a pair.
        labels: (N,) class numbers of any integer type.
        eps: how many changed pixels to report about.
        samples: ablation: samples for the bound.
        choose: ablation: samples that choose the answer.
        alpha: ablation: the chance of a false certificate, per image.
        condition: ablation: the answer must beat half, or the second class.
        tried: attack the certificates of this many images per classifier, each within its radius.
        effort: how long these attacks search.
        seed: of their draws.
        progress: told every event.
    """
    with in_python():
        device = device_of(module)
        data, notes = open_given(images, labels, device)
        request = CertifyRequest(
            subject=given_subject(module, data, device),
            pixels=given_budgets(eps),
            sampling=Sampling(choose=choose, bound=samples, alpha=alpha, condition=condition),
            tried=tried,
            effort=effort,
            seed=seed,
        )
        report: Certificate | None = None
        for event in certify_run(build_certify(request), World(), resume=False):
            if progress is not None:
                progress(event)
            if isinstance(event, CertifyFinished) and event.report is not None:
                known = event.report
                report = Certificate(results=known.results, run=known.run, proofs=event.proofs)
        if report is None:
            raise KeyboardInterrupt
        refuse_broken(report.results)
    warn_of((), notes)
    return report
