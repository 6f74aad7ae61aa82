"""The certificate itself: a proof per image, durable as it goes, then tried, then bracketed."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from robust0.auditing.guards import enough_memory, searching
from robust0.auditing.interval import accuracy
from robust0.auditing.run import run_audit as run_audit
from robust0.certify_events import (
    CertifyEvent,
    CertifyFinished,
    CertifyProgress,
    CertifyStarted,
    TrialProgress,
)
from robust0.certifying import finish
from robust0.certifying.facts import check_same_run
from robust0.certifying.job import CertifyJob
from robust0.certifying.store import PROOFS, TRIALS, Log
from robust0.certifying.trying import Group, attack_group, tried_proofs
from robust0.distributed import World
from robust0.events import AuditEvent, AuditFinished
from robust0.interrupt import Interrupt
from robust0.models.fast.oracle import Oracle
from robust0.proofs import Answer, Proof, Trial
from robust0.records import Accuracy

DRAW_SECONDS = 0.25  # between two progress events
POLL_SECONDS = 0.1  # while waiting for other processes
TrialKey = tuple[str, str, int]  # classifier, attack, image


def certify_run(
    job: CertifyJob, world: World, *, resume: bool
) -> Iterator[CertifyEvent | AuditEvent]:
    """Certify to the end, or to the first signal; the run directory always holds a way to go on."""
    if resume and job.folder is not None:
        check_same_run(job.folder, job.identity)
    with (
        Interrupt() as interrupt,
        searching(job.network, job.threads),
        enough_memory(job.rows),
    ):
        yield from _CertifyRun(job, world, interrupt, resume=resume).events()


class _CertifyRun:
    """The mutable side of a run: what is proved, what was tried, what time it is."""

    def __init__(
        self, job: CertifyJob, world: World, interrupt: Interrupt, *, resume: bool
    ) -> None:
        self.job, self.world, self.interrupt, self.resume = job, world, interrupt, resume
        self.names = job.facts.settings.classifiers
        self.ids: list[int] = job.data.ids.tolist()
        self.labels: list[int] = job.data.labels.tolist()
        self.position = {image: place for place, image in enumerate(self.ids)}
        self.proof_log = Log(job.folder, PROOFS, world.rank, Proof)
        self.trial_log = Log(job.folder, TRIALS, world.rank, Trial)
        self.proofs: dict[int, Proof] = {}
        self.trials: dict[TrialKey, Trial] = {}
        self.clock = finish.Clock(job.folder, writes=world.leads)
        self.drawn = 0.0

    def events(self) -> Iterator[CertifyEvent | AuditEvent]:
        job = self.job
        self._take(self.proof_log.open())
        self._take_trials(self.trial_log.open())
        path = str(job.folder) if job.folder else None
        known = len(self.proofs) if self.resume else 0
        yield CertifyStarted(
            job.title, len(self.ids), self.names, job.facts.settings.pixels, known, path
        )
        yield from self._prove()
        if len(self.proofs) < len(self.ids) and not self._stopping():
            return  # the leading process has come to the end without us
        yield from self._try()
        cut = self.interrupt.signal
        if job.audit is not None and cut is None:
            for event in run_audit(job.audit, self.world, resume=self.resume):
                if isinstance(event, AuditFinished):
                    cut = event.interrupted
                yield event
        if cut is not None:
            yield CertifyFinished(None, path, cut)
        elif self.world.leads:
            proofs = [self.proofs[image] for image in self.ids]
            trials = [self.trials[key] for key in self._keys()]
            self.proof_log.merge(proofs)
            self.trial_log.merge(trials)
            report = finish.conclude(job, proofs, trials, self.clock, self.world.size)
            yield CertifyFinished(report, path, None, tuple(proofs))

    # -- proofs ----------------------------------------------------------------------------------

    def _prove(self) -> Iterator[CertifyEvent]:
        data, rows = self.job.data, self.job.rows
        mine = self.ids[self.world.rank :: self.world.size]
        due = [image for image in mine if image not in self.proofs]
        begun = time.monotonic()
        for start in range(0, len(due), rows):
            if self._stopping():
                return
            part = due[start : start + rows]
            index = torch.tensor([self.position[image] for image in part], device=data.device)
            answers = self._answers(data.images(index), data.ids[index])
            found = [
                Proof(image=image, label=self.labels[self.position[image]], answers=each)
                for image, each in zip(part, answers, strict=True)
            ]
            self.proof_log.append(found)
            self._take(found)
            if self.world.leads and time.monotonic() - self.drawn > DRAW_SECONDS:
                yield self._progress()
        self.clock.spent("proofs", time.monotonic() - begun)
        while len(self.proofs) < len(self.ids) and not self._stopping():
            time.sleep(POLL_SECONDS)
            self._take(self.proof_log.others())
            if not self.world.leads and self.proof_log.is_merged:
                return
        if self.world.leads and not self._stopping():
            yield self._progress()

    def _answers(self, images: Tensor, ids: Tensor) -> list[dict[str, Answer]]:
        """Proofs of some images, in as many threads as there may be model calls at once."""
        certifier, size = self.job.certifier, -(-len(ids) // self.job.lanes)

        def prove(part: Tensor, names: Tensor) -> list[dict[str, Answer]]:
            with torch.no_grad():  # a switch of each thread's own
                return certifier.prove(part, names)

        with ThreadPoolExecutor(self.job.lanes) as threads:
            found = threads.map(prove, images.split(size), ids.split(size))
            return [answers for part in found for answers in part]

    def _take(self, found: list[Proof]) -> None:
        for proof in found:
            self.proofs.setdefault(proof.image, proof)

    def _progress(self) -> CertifyProgress:
        if self.world.size > 1:
            self._take(self.proof_log.others())
        self.drawn = time.monotonic()
        standings = tuple((name, self._standing(name)) for name in self.names)
        return CertifyProgress(len(self.proofs), len(self.ids), standings)

    def _standing(self, name: str) -> tuple[Accuracy, ...]:
        """Certified accuracy of the images seen so far, at no pixels and at those asked about."""
        seen = self.proofs.values()
        return tuple(
            accuracy(sum(p.answers[name].certified(p.label, pixels) for p in seen), len(seen))
            for pixels in (0, *self.job.facts.settings.pixels)
        )

    # -- trials ----------------------------------------------------------------------------------

    def _groups(self, name: str) -> list[Group]:
        proofs = [self.proofs[image] for image in self.ids]
        return tried_proofs(proofs, name, self.job.facts.settings.tried, self.job.attack_rows)

    def _keys(self) -> Iterator[TrialKey]:
        """Every trial of the run, in order."""
        for name in self.job.tried:
            for group in self._groups(name):
                for attack, _ in self.job.trying:
                    for image in group.images:
                        yield name, attack, image

    def _try(self) -> Iterator[CertifyEvent]:
        if self._stopping() or not self.job.tried:
            return
        total, begun = sum(1 for _ in self._keys()), time.monotonic()
        for name in self.job.tried:
            yield from self._try_one(name, total)
        self.clock.spent("trials", time.monotonic() - begun)
        while self.world.leads and len(self.trials) < total and not self._stopping():
            time.sleep(POLL_SECONDS)
            self._take_trials(self.trial_log.others())
        if self.world.leads and not self._stopping() and total:
            name, attack, _ = next(reversed(self.trials))
            yield self._trial_progress(name, attack, total)

    def _try_one(self, name: str, total: int) -> Iterator[CertifyEvent]:
        """All groups of one classifier under all attacks."""
        job, oracle = self.job, None
        answers = {image: proof.answers[name].label or 0 for image, proof in self.proofs.items()}
        for group in self._groups(name):
            mine = group.images[self.world.rank :: self.world.size]
            for attack, settings in job.trying:
                due = tuple(i for i in mine if (name, attack, i) not in self.trials)
                if not due or self._stopping():
                    continue
                if oracle is None:
                    network = job.certifier.classifier(name)
                    oracle = Oracle(network, job.attack_rows, job.device, lanes=job.lanes)
                part = Group(name, group.radius, due)
                seed = job.facts.settings.seed
                for trial in attack_group(
                    part, (attack, settings), oracle, job.data, answers, seed
                ):
                    if self._stopping():
                        return
                    if trial is not None:
                        self.trial_log.append([trial])
                        self._take_trials([trial])
                    if self.world.leads and time.monotonic() - self.drawn > DRAW_SECONDS:
                        yield self._trial_progress(name, attack, total)

    def _take_trials(self, found: list[Trial]) -> None:
        for trial in found:
            self.trials.setdefault((trial.classifier, trial.attack, trial.image), trial)

    def _trial_progress(self, name: str, attack: str, total: int) -> TrialProgress:
        if self.world.size > 1:
            self._take_trials(self.trial_log.others())
        self.drawn = time.monotonic()
        broken = tuple(sorted({t.image for t in self.trials.values() if t.broke}))
        return TrialProgress(name, attack, len(self.trials), total, broken)

    def _stopping(self) -> bool:
        return self.interrupt.signal is not None
